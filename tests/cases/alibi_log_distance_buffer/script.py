import torch
import torch.nn as nn
import torch.nn.functional as F


class LogDistanceBias(nn.Module):
    """Attention bias that falls with the logarithm of the distance."""

    def __init__(self, heads, max_len):
        super().__init__()
        pos = torch.arange(max_len)
        gap = (pos[:, None] - pos[None, :]).abs().float()
        slopes = 2.0 ** -torch.arange(1, heads + 1).float()
        self.register_buffer("log_gap", torch.log(gap), persistent=False)
        self.register_buffer("slopes", slopes)

    def forward(self, t):
        return -self.slopes.view(-1, 1, 1) * self.log_gap[:t, :t]


class Encoder(nn.Module):
    def __init__(self, n_in=5, dim=16, heads=2, max_len=32):
        super().__init__()
        self.inp = nn.Linear(n_in, dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.bias = LogDistanceBias(heads, max_len)
        self.heads = heads
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        b, t, _ = x.shape
        h = torch.tanh(self.inp(x))
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(h).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5 + self.bias(t)
        mixed = F.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(b, t, -1)).squeeze(-1)


torch.manual_seed(83)
model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(4, 10, 5)
    y = x.mean(-1).cumsum(1)
    loss = F.huber_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
