import torch
import torch.nn as nn


class Forecaster(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, series):
        h, _ = self.gru(series)
        return self.head(h[:, -1]).squeeze(-1)


def windows(n, length):
    start = torch.rand(n, 1) * 30
    t = start + torch.arange(length + 1) * 0.2
    wave = 3.0 * torch.sin(t) + 0.1 * torch.randn_like(t)
    return wave[:, :-1].unsqueeze(-1), wave[:, -1]


def train(lr=10.0, momentum=0.9, steps=80):
    torch.manual_seed(19)
    x, y = windows(64, 12)
    net = Forecaster()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum)
    mse = nn.MSELoss()
    best = float("inf")
    for step in range(steps):
        optimizer.zero_grad()
        loss = mse(net(x), y)
        loss.backward()
        optimizer.step()
        best = min(best, loss.item())
    print("best mse", best, "last mse", loss.item())


if __name__ == "__main__":
    train()
