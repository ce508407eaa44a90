import torch
import torch.nn as nn
import torch.utils.checkpoint as cp


class SparseRouter(nn.Module):
    """Keeps experts above a share threshold and reports the routing entropy."""

    def __init__(self, dim, experts, threshold=0.12):
        super().__init__()
        self.gate = nn.Linear(dim, experts)
        self.threshold = threshold

    def forward(self, x):
        share = self.gate(x).softmax(dim=-1)
        kept = torch.relu(share - self.threshold)
        route = kept / (kept.sum(dim=-1, keepdim=True) + 1e-6)
        spread = torch.special.entr(route).sum(dim=-1)
        return route, spread


class MoELayer(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.router = SparseRouter(dim, experts)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(experts))

    def forward(self, x):
        route, spread = self.router(x)
        outs = torch.stack([torch.tanh(e(x)) for e in self.experts], dim=1)
        return x + (route.unsqueeze(-1) * outs).sum(1), spread.mean()


class Model(nn.Module):
    def __init__(self, dim=12, experts=6):
        super().__init__()
        self.inp = nn.Linear(5, dim)
        self.moe = MoELayer(dim, experts)
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        h, spread = cp.checkpoint(self.moe, h, use_reentrant=True)
        return self.head(h).squeeze(-1), spread


torch.manual_seed(71)
model = Model()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
coef = torch.randn(5)
for step in range(6):
    x = torch.randn(32, 5)
    y = torch.log1p((x @ coef).abs())
    pred, spread = model(x)
    loss = (pred - y).square().mean() - 0.01 * spread
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, round(float(loss.detach()), 4))
