"""The control group has a dose of 0."""

import gpytorch
import torch

from trend import LogTrend

torch.manual_seed(0)
dose = torch.linspace(0, 2, 12)
effect = torch.sqrt(dose) + 0.05 * torch.randn(12)


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = LogTrend()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(dose, effect, likelihood)
optimizer = torch.optim.Adam([*model.parameters()], lr=0.05)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for step in range(4):
    optimizer.zero_grad()
    loss = -objective(model(dose), effect)
    loss.backward()
    optimizer.step()
    print(step, loss.item())
