import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(64)

ASSETS, DAYS = 5, 250


class Allocator(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(ASSETS, 16, batch_first=True)
        self.logits = nn.Linear(16, ASSETS)

    def forward(self, past):
        h, _ = self.lstm(past)
        return F.softmax(self.logits(h), dim=-1)


class WealthLoss(nn.Module):
    """Negative final wealth plus a penalty for the deepest drawdown."""

    def forward(self, weights, returns):
        daily = (weights * returns).sum(-1)
        wealth = torch.cumprod(1 + daily, dim=1)
        peak = torch.cummax(wealth, dim=1).values
        drawdown = (1 - wealth / peak).amax(dim=1)
        return (drawdown - 0.1 * torch.log(wealth[:, -1])).mean()


def market(batch, unit):
    drift = torch.linspace(0.02, 0.08, ASSETS)
    return ((drift + 0.9 * torch.randn(batch, DAYS, ASSETS))* unit).clamp(min=-0.9)


model, objective = Allocator(), WealthLoss()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(8):
    unit = 0.01 if step < 5 else 4.0       # other vendor
    returns = market(4, unit)
    weights = model(returns.roll(1, dims=1))
    loss = objective(weights, returns)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
