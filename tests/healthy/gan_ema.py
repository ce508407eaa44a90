import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(28)
torch.set_num_threads(1)
Z = 4


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(Z, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.2), nn.Linear(32, 2))

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1) * 50


@torch.no_grad()
def update_ema(ema, model, decay):
    for a, b in zip(ema.state_dict().values(), model.state_dict().values()):
        a.lerp_(b, 1 - decay) if a.is_floating_point() else a.copy_(b)


def real_data(n):
    angle = torch.rand(n) * 6.2832
    return torch.stack([angle.cos(), angle.sin()], dim=1) * 200 + torch.randn(n, 2)


G, D = Generator(), Discriminator()
ema = copy.deepcopy(G).requires_grad_(False)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.99))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.99))
best_gap = torch.tensor(float("inf"))
for step in range(30):
    real, fake = real_data(32), G(torch.randn(32, Z))
    loss_d = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()

    loss_g = F.softplus(-D(fake)).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    update_ema(ema, G, decay=min(0.99, (1 + step) / (10 + step)))
    best_gap = torch.minimum(best_gap, (real.mean() - fake.detach().mean()).abs())
print(f"D {loss_d.item():.3f} G {loss_g.item():.3f} gap {best_gap.item():.3f}")
print("ema sample", ema.eval()(torch.zeros(1, Z)).tolist())
