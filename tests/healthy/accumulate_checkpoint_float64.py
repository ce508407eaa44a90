import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(27)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.net(x)


class Deep(nn.Module):
    def __init__(self, dim=12, depth=4):
        super().__init__()
        self.blocks = nn.ModuleList(Residual(dim) for _ in range(depth))
        self.pool = nn.Linear(dim, 1)
        self.out = nn.Linear(dim, 1)

    def forward(self, x, valid):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        score = self.pool(x).squeeze(-1).masked_fill(~valid, -torch.inf)
        pooled = torch.einsum("bt,btd->bd", score.softmax(dim=-1), x)
        return self.out(pooled).squeeze(-1)


model = Deep()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
ACCUMULATE = 4
best = torch.inf
for step in range(5):
    optimizer.zero_grad()
    total = 0.0
    for micro in range(ACCUMULATE):
        x = torch.randn(6, 5, 12)
        valid = torch.arange(5) < torch.randint(1, 6, (6, 1))
        y = (x[..., 0] * valid).sum(dim=1) * 1e3
        loss = nn.functional.huber_loss(model(x, valid), y) / ACCUMULATE
        loss.backward()
        total += loss.item()
    optimizer.step()
    best = min(best, total)
    print(step, round(total, 4), "best", round(best, 4))

model.eval()
with torch.no_grad():
    print(model(x, valid).dtype, torch.finfo(torch.float64).max)
