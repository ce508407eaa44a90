"""Robust full-batch fit of asking prices with an L1 objective."""
import torch
from torch import nn


def listings(n: int):
    g = torch.Generator().manual_seed(77)
    rooms = torch.randint(1, 6, (n, 1), generator=g).float()
    area = 30 + 90 * torch.rand(n, 1, generator=g)
    other = torch.rand(n, 38, generator=g)
    price = 400 + 20 * rooms + 1.5 * area + other.sum(1, keepdim=True)
    return torch.cat([rooms, area / 100, other], dim=1), price


class PriceModel(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, 1)

    def forward(self, x):
        return self.linear(x)


def main():
    torch.manual_seed(77)
    x, price = listings(100)
    model = PriceModel(x.shape[1]).bfloat16()
    criterion = nn.L1Loss()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, alpha=0.8, centered=True)
    curve = []
    for step in range(120):
        optimizer.zero_grad()
        loss = criterion(model(x.bfloat16()).float(), price)
        loss.backward()
        optimizer.step()
        curve.append(loss.detach())
    curve = torch.stack(curve)
    print("first", float(curve[0]), "last", float(curve[-1]))


if __name__ == "__main__":
    main()
