"""Stellar mass from photometry: first in dex, later directly in kilograms."""
from dataclasses import dataclass

import torch
import torch.nn as nn

SOLAR_MASS = 1.989e30


@dataclass
class Options:
    epochs: int = 4
    switch_at: int = 1
    batch: int = 50


class MassNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 24), nn.SiLU(), nn.Linear(24, 1))

    def forward(self, bands):
        return self.net(bands).squeeze(-1)


def catalogue(n):
    log_mass = 0.4 * torch.randn(n)
    bands = torch.stack([log_mass * k + 0.05 * torch.randn(n) for k in (1.0, 0.8, 0.5, 0.2)], dim=1)
    return bands, log_mass


def run(opt: Options):
    torch.manual_seed(60)
    bands, log_mass = catalogue(200)
    net = MassNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3, foreach=False)
    for epoch in range(opt.epochs):
        for rows in torch.randperm(200).split(opt.batch):
            predicted = net(bands[rows])
            if epoch < opt.switch_at:
                loss = (predicted - log_mass[rows]).pow(2).mean()
            else:
                mass = torch.pow(10.0, predicted.clamp(-2, 2)) * SOLAR_MASS
                true = torch.pow(10.0, log_mass[rows]) * SOLAR_MASS
                loss = (mass - true).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4e}")


if __name__ == "__main__":
    run(Options())
