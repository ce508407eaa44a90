"""Two points at one place: the factorisation fails at first and is repeated with a ridge."""

import warnings

import gpytorch
import torch

warnings.simplefilter("ignore")
torch.manual_seed(0)
x = torch.linspace(0, 1, 10).repeat_interleave(2)
y = torch.sin(6 * x)


class Model(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(likelihood)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for _ in range(6):
    optimizer.zero_grad()
    loss = -objective(model(x), y)
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    print(round(loss.item(), 3), round(model(torch.tensor([0.5])).variance.item(), 2) < 1)
