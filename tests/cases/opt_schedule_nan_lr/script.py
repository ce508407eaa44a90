"""Character classifier with linear warm-up followed by cosine decay."""
import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import LambdaLR


class Schedule:
    def __init__(self, warmup, total):
        self.warmup = np.float64(warmup)
        self.total = np.float64(total)

    def __call__(self, step):
        if step < self.warmup:
            return (step + 1) / self.warmup
        with np.errstate(all="ignore"):
            progress = (step - self.warmup) / (self.total - self.warmup)
            return 0.5 * (1.0 + np.cos(np.pi * progress))


def glyphs(n):
    y = torch.randint(0, 4, (n,))
    x = torch.randn(n, 16) * 0.5
    x[torch.arange(n), y * 4] += 2.0
    return x, y


def main():
    torch.manual_seed(27)
    x, y = glyphs(128)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches_per_epoch = 4
    scheduler = LambdaLR(optimizer, Schedule(warmup=2 * batches_per_epoch, total=2 * batches_per_epoch))
    for epoch in range(3):
        for xb, yb in zip(x.chunk(batches_per_epoch), y.chunk(batches_per_epoch)):
            loss = nn.functional.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch} loss {loss.detach():.4f}")


if __name__ == "__main__":
    main()
