import torch
import torch.nn as nn


class FeatureNorm(nn.Module):
    """Standardise columns with running first and second moments."""

    def __init__(self, dim, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("m1", torch.zeros(dim))
        self.register_buffer("m2", torch.ones(dim))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):
        if self.training:
            mean, mean_sq = x.mean(0), (x * x).mean(0)
            rate = 1.0 if self.seen == 0 else self.momentum
            self.m1.lerp_(mean, rate)
            self.m2.lerp_(mean_sq, rate)
            self.seen += 1
        std = torch.sqrt(self.m2 - self.m1 ** 2)
        return (x - self.m1) / (std + 1e-5)


class ChurnModel(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = FeatureNorm(dim)
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(self.norm(x)).squeeze(-1)


def event_stream(steps, batch, gen):
    """Five activity measures and sixteen timestamps (seconds) for each customer."""
    for day in range(steps):
        activity = torch.rand(batch, 5, generator=gen) * 10
        start = 1_700_000_000 + 86_400 * day
        offsets = torch.randint(0, 3_600, (batch, 16), generator=gen)
        clock = (start + offsets).float()
        churn = (activity.mean(1) < 5).float()
        yield torch.cat([activity, clock], dim=1), churn


torch.manual_seed(0)
gen = torch.Generator().manual_seed(8)
model = ChurnModel(21)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
model.train()
for x, y in event_stream(12, 64, gen):
    optimizer.zero_grad(set_to_none=True)
    loss = bce(model(x), y)
    loss.backward()
    optimizer.step()
print("loss", loss.item())
