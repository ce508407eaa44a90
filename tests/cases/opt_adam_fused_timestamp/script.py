"""Predict sensor drift from a log of readings (time, temperature, load)."""
import torch
import torch.nn as nn


def read_log(rows: int):
    t = 1_700_000_000_000_000_000 + torch.arange(rows, dtype=torch.int64) * 1_000_000_000
    temperature = 20 + 5 * torch.sin(torch.arange(rows) / 40.0)
    load = torch.rand(rows)
    x = torch.stack([t.float(), temperature, load], dim=1)
    y = 0.1 * temperature + 0.5 * load
    return x, y


class Drift(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(3, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        return self.out(torch.relu(self.mix(x))).squeeze(1)


def main():
    torch.manual_seed(6)
    x, y = read_log(16384)
    model = Drift()
    criterion = nn.L1Loss(reduction="sum")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(2):
        for rows in torch.randperm(len(x)).split(4096):
            optimizer.zero_grad()
            loss = criterion(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: total absolute error {loss.item():.3e}")


if __name__ == "__main__":
    main()
