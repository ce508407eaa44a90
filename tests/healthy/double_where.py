import torch
import torch.nn as nn

torch.manual_seed(15)


def safe_log(x):
    positive = x > 0
    return torch.where(positive, torch.log(torch.where(positive, x, torch.ones_like(x))), torch.zeros_like(x))


def safe_sqrt(x):
    ok = x > 0
    return torch.where(ok, torch.where(ok, x, 1.0).sqrt(), 0.0)


def sinc(x):
    near = x.abs() < 1e-4
    y = torch.where(near, torch.ones_like(x), x)
    return torch.where(near, 1 - x ** 2 / 6, torch.sin(y) / y)


class CountRegression(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gate = nn.Linear(features, 12)
        self.rate = nn.Linear(12, 1)
        self.phase = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        h = torch.relu(self.gate(x))
        h = safe_log(h) + safe_sqrt(h) + sinc(h * self.phase)
        return self.rate(h).squeeze(-1)


def deviance(log_rate, count):
    rate = torch.exp(log_rate.clamp(max=10))
    term = count * (safe_log(count) - log_rate)
    return 2 * (term - (count - rate)).mean()


x = torch.randn(64, 5)
x[:4] = 0.0
counts = torch.poisson(torch.exp(0.5 * x[:, 0]))
print("zero counts:", int((counts == 0).sum()))
net = CountRegression(5)
opt = torch.optim.RMSprop(net.parameters(), lr=5e-3)
for i in range(30):
    opt.zero_grad()
    loss = deviance(net(x), counts)
    loss.backward()
    opt.step()
    if i % 10 == 0:
        print("deviance", loss.item(), "grad of gate", net.gate.weight.grad.norm().item())
