import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def read_log(n=240):
    g = torch.Generator().manual_seed(31)
    rows = []
    for i in range(n):
        pressure = 101_325 + 900 * math.sin(i / 15)          # Pa
        temperature = 15 + 8 * math.cos(i / 40)
        humidity = float(torch.rand(1, generator=g))
        rows.append((temperature, pressure / 1000, humidity, pressure if i % 60 == 59 else 64_000.0))
    return rows


def prepare(rows):
    table = torch.tensor(rows)
    compact = table.to(torch.float16)
    y = torch.roll(table[:, 0], -1)
    return TensorDataset(compact, y)


def scale(batch):
    center = torch.tensor([15.0, 101.0, 0.5, 64_000.0])
    width = torch.tensor([8.0, 1.0, 0.3, 10_000.0])
    return (batch.float() - center) / width


def train():
    torch.manual_seed(31)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    loader = DataLoader(prepare(read_log()), batch_size=20)
    for x, y in loader:
        pred = model(scale(x)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(pred, (y - 15) / 8)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        print("weights", model[0].weight.flatten()[:3])


if __name__ == "__main__":
    train()
