import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

from lars import LARS


class Slides(Dataset):
    """Small grey patches; some are background only."""

    def __init__(self, n=96):
        g = torch.Generator().manual_seed(40)
        self.label = torch.randint(0, 3, (n,), generator=g)
        self.patch = torch.rand(n, 1, 6, 6, generator=g) * 0.4
        for k in range(n):
            self.patch[k, 0, self.label[k] * 2] += 0.6
        self.patch[64:80] = 0.0

    def __len__(self):
        return len(self.label)

    def __getitem__(self, k):
        return self.patch[k], self.label[k]


def build():
    return nn.Sequential(nn.Conv2d(1, 6, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(96, 3))


def main():
    torch.manual_seed(40)
    net = build()
    optimizer = LARS(net.parameters(), lr=0.2)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        for patch, label in DataLoader(Slides(), batch_size=16):
            optimizer.zero_grad()
            loss = criterion(net(patch), label)
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss %.4f" % loss.item())


if __name__ == "__main__":
    main()
