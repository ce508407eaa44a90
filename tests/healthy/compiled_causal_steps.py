"""A compiled causal attention block: the upper triangle is -inf before every softmax."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width=16, length=12):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, 7)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / 4 + self.mask
        return self.head(scores.softmax(-1) @ v)


torch.manual_seed(0)
net = Block()
compiled = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
x = torch.randn(32, 12, 16)
y = x[..., :7].argmax(-1)
for step in range(8):
    loss = nn.functional.cross_entropy(compiled(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: {loss.item():.4f}")
