"""Learn a low-dimensional covariance and sample correlated shocks from it."""
import torch
import torch.nn as nn


class ShockModel(nn.Module):
    def __init__(self, n_assets, n_factors):
        super().__init__()
        self.loadings = nn.Parameter(torch.randn(n_assets, n_factors) * 0.3)
        self.log_idio = nn.Parameter(torch.full((n_assets,), -1.0))

    def covariance(self, active):
        load = self.loadings[active]
        idio = torch.diag(self.log_idio.exp()[active] ** 2)
        return load @ load.T + idio

    def forward(self, noise, active):
        cov = self.covariance(active)
        # holdings listed twice share one risk
        same = (active[:, None] == active[None, :]).to(cov.dtype)
        cov = cov * (1 - same) + same * cov.diagonal().unsqueeze(1)
        root = torch.linalg.cholesky(cov)
        return noise @ root.T


def batches():
    yield torch.tensor([0, 1, 2, 3])
    yield torch.tensor([4, 2, 0])
    yield torch.tensor([5, 1, 3, 2])
    yield torch.tensor([1, 4, 4, 0])
    yield torch.tensor([2, 5])


torch.manual_seed(44)
model = ShockModel(6, 2).double()
opt = torch.optim.Adam(model.parameters(), lr=0.01)
target_vol = torch.full((6,), 0.4, dtype=torch.float64)
for held in batches():
    shocks = model(torch.randn(256, len(held), dtype=torch.float64), held)
    loss = (shocks.std(dim=0) - target_vol[held]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(held.tolist(), round(loss.item(), 5))
