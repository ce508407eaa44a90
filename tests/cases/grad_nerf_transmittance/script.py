import torch
import torch.nn as nn
import torch.nn.functional as F


class RadianceField(nn.Module):
    def __init__(self, bands: int = 4, width: int = 48):
        super().__init__()
        self.register_buffer("freq", 2.0 ** torch.arange(bands))
        self.net = nn.Sequential(nn.Linear(6 * bands, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.density = nn.Linear(width, 1)
        self.colour = nn.Linear(width, 3)

    def forward(self, pts):
        enc = (pts.unsqueeze(-1) * self.freq).flatten(-2)
        h = self.net(torch.cat([enc.sin(), enc.cos()], dim=-1))
        return F.softplus(self.density(h)).squeeze(-1) + 1e-3, self.colour(h).sigmoid()


def composite(sigma, rgb, depth):
    delta = depth[1:] - depth[:-1]
    delta = torch.cat([delta, delta.new_tensor([1e10])])
    alpha = 1.0 - torch.exp(-sigma * delta)
    log_free = torch.log(1.0 - alpha)
    passed = torch.exp(torch.cumsum(log_free, dim=-1))
    passed = torch.cat([torch.ones_like(passed[:, :1]), passed[:, :-1]], dim=-1)
    weights = passed * alpha
    opacity = weights.sum(-1, keepdim=True)
    expected_depth = (weights * depth).sum(-1) / opacity.squeeze(-1).clamp(min=1e-5)
    return (weights.unsqueeze(-1) * rgb).sum(-2), expected_depth


def rays(n):
    o = torch.tensor([0.0, 0.0, -2.0]).expand(n, 3)
    d = F.normalize(torch.cat([0.6 * torch.randn(n, 2), torch.ones(n, 1)], dim=1), dim=1)
    target = 0.5 + 0.5 * torch.stack([d[:, 0], d[:, 1], d[:, 0] * d[:, 1]], dim=1)
    return o, d, target


torch.manual_seed(23)
field = RadianceField()
optim = torch.optim.Adam(field.parameters(), lr=5e-4)
depth = torch.linspace(0.5, 4.0, 24)
for it in range(8):
    o, d, target = rays(40)
    pts = o[:, None] + d[:, None] * depth[None, :, None]
    sigma, rgb = field(pts)
    image, z = composite(sigma, rgb, depth)
    loss = F.mse_loss(image, target) + 1e-3 * z.var()
    optim.zero_grad()
    loss.backward()
    optim.step()
    if it % 2 == 0:
        print(f"iter {it} psnr {-10 * torch.log10(F.mse_loss(image, target).detach()):.2f}")
