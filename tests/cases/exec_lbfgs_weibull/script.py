"""Maximum-likelihood Weibull fit to censored failure times with L-BFGS."""
import torch


class WeibullAFT(torch.nn.Module):
    def __init__(self, n_cov):
        super().__init__()
        self.shape = torch.nn.Parameter(torch.tensor(1.0))
        self.scale = torch.nn.Parameter(torch.tensor(1.0))
        self.beta = torch.nn.Parameter(torch.zeros(n_cov))

    def forward(self, time, event, cov):
        factor = torch.exp(torch.clamp(cov @ self.beta, -5, 5))
        eta = self.scale * factor
        log_t = torch.log(time)
        log_eta = torch.log(eta)
        log_hazard = torch.log(self.shape) - self.shape * log_eta + (self.shape - 1) * log_t
        cumulative = torch.exp(self.shape * (log_t - log_eta))
        return -(event * log_hazard - cumulative).mean()


def lifetimes(n):
    g = torch.Generator().manual_seed(74)
    cov = torch.randn(n, 2, generator=g)
    u = torch.rand(n, generator=g).clamp(min=1e-4)
    t = 30.0 * torch.exp(0.3 * cov[:, 0]) * (-torch.log(u)) ** (1 / 1.8)
    censor = 60.0 * torch.rand(n, generator=g) + 5
    return torch.minimum(t, censor), (t <= censor).float(), cov


def main():
    time, event, cov = lifetimes(80)
    model = WeibullAFT(2)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1.5, max_iter=5)

    def closure():
        optimizer.zero_grad()
        nll = model(time, event, cov)
        nll.backward()
        return nll

    for sweep in range(4):
        value = optimizer.step(closure)
        print(f"sweep {sweep} nll {value.detach():.4f}")
    print({n: p.tolist() for n, p in model.named_parameters()})


if __name__ == "__main__":
    main()
