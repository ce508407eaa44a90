"""Gaussian process regression: hyper-parameters by L-BFGS, Cholesky with growing jitter."""
import math

import torch

torch.manual_seed(21)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def robust_cholesky(k, tries=8):
    jitter = 0.0
    for attempt in range(tries):
        try:
            return torch.linalg.cholesky(k + jitter * torch.eye(k.size(0))), attempt
        except torch.linalg.LinAlgError:
            jitter = 1e-10 if jitter == 0.0 else jitter * 10
    raise RuntimeError("kernel matrix is not positive definite")


def kernel(a, b, log_length, log_scale):
    d2 = (a[:, None] - b[None, :]) ** 2
    return torch.exp(2 * log_scale) * torch.exp(-0.5 * d2 / torch.exp(2 * log_length))


x = torch.sort(torch.rand(20)).values * 4
x[5] = x[4]
y = torch.sin(2 * x) + 0.1 * torch.randn(20)

hyper = torch.tensor([0.0, 0.0, -1.0], requires_grad=True)
optimizer = torch.optim.LBFGS([hyper], lr=0.5, max_iter=12, line_search_fn="strong_wolfe")
best = torch.tensor(float("inf"))


def closure():
    optimizer.zero_grad()
    k = kernel(x, x, hyper[0], hyper[1]) + torch.exp(2 * hyper[2]) * torch.eye(20)
    chol, _ = robust_cholesky(k)
    alpha = torch.cholesky_solve(y[:, None], chol)
    nll = 0.5 * (y @ alpha.squeeze()) + chol.diagonal().log().sum() + 10 * math.log(2 * math.pi)
    nll.backward()
    return nll


for i in range(3):
    nll = optimizer.step(closure)
    best = torch.minimum(best, nll.detach())
    print("nll", round(nll.item(), 4), "best", round(best.item(), 4))

with torch.no_grad():
    grid = torch.linspace(0, 4, 60)
    noiseless = kernel(grid, grid, hyper[0], hyper[1])
    chol, attempts = robust_cholesky(noiseless)
    sample = chol @ torch.randn(60)
print("retries", attempts > 0, "prior sample range", round((sample.max() - sample.min()).item(), 2))
