import torch
import torch.nn as nn
from torch.distributions import Normal


class PolynomialFeatures(nn.Module):
    def __init__(self, degree):
        super().__init__()
        self.degree = degree

    def forward(self, s):
        return torch.cat([s.pow(k) for k in range(1, self.degree + 1)], dim=-1)


class GaussianPolicy(nn.Module):
    def __init__(self, state_dim, action_dim, degree=9):
        super().__init__()
        self.poly = PolynomialFeatures(degree)
        self.mean = nn.Linear(state_dim * degree, action_dim)
        self.log_std = nn.Parameter(torch.full((action_dim,), -0.5))
        nn.init.normal_(self.mean.weight, std=1e-3)

    def forward(self, s):
        return self.mean(self.poly(s)), self.log_std.clamp(-5, 2).exp()


class Drone:
    """A drifting drone with a barometric altimeter."""

    LOST_SIGNAL = 2 ** 31 - 1

    def __init__(self):
        self.t = 0

    def observe(self):
        self.t += 1
        altitude = 0.8 + 0.02 * self.t if self.t % 12 else float(self.LOST_SIGNAL)
        return torch.tensor([[0.1 * self.t, -0.2, altitude]])


torch.manual_seed(14)
policy = GaussianPolicy(3, 2)
opt = torch.optim.SGD(policy.parameters(), lr=1e-3)
env = Drone()
for t in range(40):
    state = env.observe()
    mu, sigma = policy(state)
    dist = Normal(mu, sigma)
    action = dist.sample()
    reward = -torch.tanh(action).pow(2).sum()
    loss = -(dist.log_prob(action).sum() * reward).clamp(-1e3, 1e3)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    opt.step()
print("flight finished")
