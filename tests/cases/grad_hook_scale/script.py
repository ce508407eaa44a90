import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, width, gain):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.gain = gain

    def boost(self, grad):
        return grad * self.gain

    def forward(self, x):
        h = x + 0.5 * torch.tanh(self.fc(self.norm(x)))
        if h.requires_grad:
            h.register_hook(self.boost)
        return h


class DeepNet(nn.Module):
    def __init__(self, depth=14, width=16, gain=1024.0):
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.blocks = nn.ModuleList(Block(width, gain) for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batches(count):
    w = torch.randn(8, 3)
    for _ in range(count):
        x = torch.randn(32, 8)
        yield x, (x @ w).argmax(1)


torch.manual_seed(17)
net = DeepNet()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for n, (x, y) in enumerate(batches(5)):
    logits = net(x)
    keep = torch.rand_like(logits) > 0.05
    floor = torch.finfo(logits.dtype).min
    loss = criterion(torch.where(keep | nn.functional.one_hot(y, 3).bool(), logits, floor), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(n, f"{loss.detach():.4f}")
