import torch
import torch.nn as nn


class CountRegressor(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_in, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return nn.functional.softplus(self.net(x)).squeeze(-1) + 1e-3


def poisson_deviance(mu, y):
    ratio = y / mu
    term = torch.where(y > 0, y * torch.log(ratio), torch.zeros_like(mu))
    return 2.0 * (term - (y - mu)).mean()


def visits(n, quiet):
    x = torch.randn(n, 7)
    y = torch.poisson(torch.exp(0.4 * x[:, 0] + 1.2)) + 1.0
    if quiet:
        y[: n // 4] = 0.0
    return x, y


def main():
    torch.manual_seed(73)
    model = CountRegressor(7)
    deviance = torch.compile(poisson_deviance, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for day in range(6):
        x, y = visits(40, quiet=day == 3)
        loss = deviance(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"day {day} deviance {loss.detach().item():.4f}")


if __name__ == "__main__":
    main()
