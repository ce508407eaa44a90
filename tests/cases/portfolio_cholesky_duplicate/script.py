"""Learn factor loadings whose simulated shocks have a wanted volatility."""
import torch
import torch.nn as nn


class ShockModel(nn.Module):
    def __init__(self, n_assets, n_factors, quote_noise=0.02):
        super().__init__()
        self.loadings = nn.Parameter(torch.randn(n_assets, n_factors) * 0.3)
        self.log_idio = nn.Parameter(torch.full((n_assets,), -1.0))
        self.register_buffer("noise_var", torch.tensor(quote_noise))

    def covariance(self, held):
        load = self.loadings[held]
        same = (held[:, None] == held[None, :]).to(load.dtype)
        idio = self.log_idio[held].exp().square()
        return load @ load.T + same * idio.unsqueeze(1)

    def forward(self, noise, held):
        cov = self.covariance(held)
        cleaned = cov - self.noise_var * torch.eye(len(held), dtype=cov.dtype)
        root = torch.linalg.cholesky(cleaned)
        return noise @ root.T


def portfolios():
    yield torch.tensor([0, 1, 2, 3])
    yield torch.tensor([4, 2, 0])
    yield torch.tensor([5, 1, 3, 2])
    yield torch.tensor([1, 4, 4, 0])
    yield torch.tensor([2, 5])


torch.manual_seed(44)
model = ShockModel(6, 2).double()
opt = torch.optim.Adam(model.parameters(), lr=0.01)
target_vol = torch.full((6,), 0.4, dtype=torch.float64)
for held in portfolios():
    shocks = model(torch.randn(256, len(held), dtype=torch.float64), held)
    loss = (shocks.std(dim=0) - target_vol[held]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(held.tolist(), round(loss.item(), 5))
