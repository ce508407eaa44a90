"""Sequential experiment design: refit the kernel's hyper-parameters after each new block of measurements."""
import math

import torch


class RBFKernel(torch.nn.Module):
    def __init__(self, lengthscale=0.3, variance=1.0, noise=0.05):
        super().__init__()
        self.log_ls = torch.nn.Parameter(torch.tensor(math.log(lengthscale)))
        self.log_var = torch.nn.Parameter(torch.tensor(math.log(variance)))
        self.log_noise = torch.nn.Parameter(torch.tensor(math.log(noise)))

    def forward(self, x):
        sq = (x[:, None] - x[None, :]) ** 2
        k = self.log_var.exp() * torch.exp(-0.5 * sq / self.log_ls.exp() ** 2)
        return k + self.log_noise.exp() * torch.eye(len(x))


def negative_mll(kernel, x, y):
    k = kernel(x)
    alpha = torch.linalg.solve(k, y)
    fit = 0.5 * y @ alpha
    complexity = 0.5 * torch.log(torch.det(k))
    return (fit + complexity + 0.5 * len(x) * math.log(2 * math.pi)) / len(x)


def measure(x):
    return torch.sin(4 * x) + 0.2 * torch.randn_like(x)


def main(rounds=6, block=20):
    torch.manual_seed(4)
    kernel = RBFKernel()
    opt = torch.optim.Adam(kernel.parameters(), lr=0.01)
    xs, ys = torch.empty(0), torch.empty(0)
    for r in range(rounds):
        new = 3 * torch.rand(block)
        xs, ys = torch.cat([xs, new]), torch.cat([ys, measure(new)])
        for _ in range(3):
            opt.zero_grad()
            nll = negative_mll(kernel, xs, ys)
            nll.backward()
            opt.step()
        print(f"round {r} n={len(xs):3d} nll={nll.item():.3f} noise={kernel.log_noise.exp().item():.4f}")


if __name__ == "__main__":
    main()
