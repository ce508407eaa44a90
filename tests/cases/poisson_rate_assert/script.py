import torch
import torch.nn as nn


class RateNet(nn.Module):
    """Expected number of calls per hour."""

    def __init__(self, n_in):
        super().__init__()
        self.fc1 = nn.Linear(n_in, 16)
        self.fc2 = nn.Linear(16, 1)
        nn.init.constant_(self.fc2.bias, 3.0)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x))).squeeze(1)


class PoissonNLL(nn.Module):
    def forward(self, rate, counts):
        stirling = torch.lgamma(counts + 1)
        return (rate - counts * rate.log() + stirling).mean()


def batches(n_batches, size):
    g = torch.Generator().manual_seed(77)
    for _ in range(n_batches):
        hour = torch.randint(0, 24, (size,), generator=g)
        weekday = torch.randint(0, 7, (size,), generator=g)
        x = torch.stack([hour / 24.0, weekday / 7.0, (weekday > 4).float()], dim=1)
        lam = 0.2 + 2.5 * torch.exp(-((hour - 14.0) / 4.0) ** 2) * (weekday < 5)
        yield x, torch.poisson(lam, generator=g)


def train():
    torch.manual_seed(5)
    model, criterion = RateNet(3), PoissonNLL()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    for i, (x, counts) in enumerate(batches(60, 24)):
        optimizer.zero_grad()
        loss = criterion(model(x), counts)
        assert torch.isfinite(loss), "loss is not finite"
        loss.backward()
        optimizer.step()
    print("trained")


train()
