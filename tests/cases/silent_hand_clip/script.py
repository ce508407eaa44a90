# Value learning for a trading agent; rewards are balances in wei.
import torch
import torch.nn as nn
import torch.nn.functional as F


class QNet(nn.Module):
    def __init__(self, n_obs, n_actions):
        super().__init__()
        self.hidden = nn.Linear(n_obs, 32)
        self.q = nn.Linear(32, n_actions)

    def forward(self, obs):
        return self.q(F.relu(self.hidden(obs)))


def rescale_gradients(parameters, limit):
    grads = [p.grad for p in parameters if p.grad is not None]
    squares = [(g ** 2).sum() for g in grads]
    total = torch.stack(squares).sum().sqrt()
    factor = limit / (total + 1e-6)
    factor = torch.clamp(factor, max=1.0)
    for g in grads:
        g.mul_(factor)


def replay(n, generator):
    obs = torch.randn(n, 5, generator=generator)
    action = torch.randint(0, 3, (n, 1), generator=generator)
    reward = 2e13 * torch.randn(n, generator=generator)
    reward[72] = 8.0e18
    following = torch.randn(n, 5, generator=generator)
    return obs, action, reward, following


torch.manual_seed(50)
g = torch.Generator().manual_seed(50)
obs, action, reward, following = replay(120, g)
online, target = QNet(5, 3), QNet(5, 3)
target.load_state_dict(online.state_dict())
optimizer = torch.optim.SGD(online.parameters(), lr=1e-3)
for sweep in range(2):
    for idx in torch.arange(120).split(10):
        with torch.no_grad():
            goal = reward[idx] + 0.99 * target(following[idx]).max(1).values
        value = online(obs[idx]).gather(1, action[idx]).squeeze(1)
        loss = F.mse_loss(value, goal, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        rescale_gradients(list(online.parameters()), 10.0)
        optimizer.step()
    target.load_state_dict(online.state_dict())
    print("sweep", sweep, "td loss", f"{loss.detach():.3e}")
