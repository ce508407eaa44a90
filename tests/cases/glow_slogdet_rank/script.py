import math

import torch
import torch.nn as nn


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum()


class Mixing(nn.Module):
    def __init__(self, dim, permutation=None):
        super().__init__()
        w = torch.eye(dim) if permutation is None else torch.eye(dim)[permutation]
        self.weight = nn.Parameter(w)

    def forward(self, x):
        sign, logabsdet = torch.linalg.slogdet(self.weight)
        return x @ self.weight.T, logabsdet


class Coupling(nn.Module):
    def __init__(self, dim, hidden=24):
        super().__init__()
        self.half = dim // 2
        self.net = nn.Sequential(nn.Linear(self.half, hidden), nn.ReLU(), nn.Linear(hidden, 2 * (dim - self.half)))

    def forward(self, x):
        a, b = x[:, :self.half], x[:, self.half:]
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        return torch.cat([a, b * s.exp() + t], dim=1), s.sum(1)


class Flow(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.layers = nn.ModuleList([
            ActNorm(dim), Mixing(dim, [1, 0, 3, 2]), Coupling(dim),
            ActNorm(dim), Mixing(dim, [2, 3, 2, 0]), Coupling(dim),
        ])

    def forward(self, x):
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, logdet = layer(x)
            total = total + logdet
        log_base = -0.5 * (x ** 2 + math.log(2 * math.pi)).sum(1)
        return log_base + total


def main():
    torch.manual_seed(61)
    flow = Flow()
    opt = torch.optim.Adam(flow.parameters(), lr=1e-3)
    data = torch.randn(256, 4) @ torch.randn(4, 4)
    for step in range(5):
        nll = -flow(data[torch.randint(0, 256, (64,))]).mean()
        opt.zero_grad()
        nll.backward()
        opt.step()
        print(step, nll.item())


if __name__ == "__main__":
    main()
