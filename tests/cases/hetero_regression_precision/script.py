import torch
from torch import nn


class MeanVarianceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.mu = nn.Linear(32, 1)
        self.log_var = nn.Linear(32, 1)

    def forward(self, x):
        h = self.shared(x)
        return self.mu(h), self.log_var(h)


class GaussianNLL(nn.Module):
    def forward(self, mu, log_var, y):
        precision = torch.exp(-log_var)
        return 0.5 * (precision * (y - mu).square() + log_var).mean()


def batches(n):
    g = torch.Generator().manual_seed(15)
    for _ in range(n):
        x = torch.rand(64, 4, generator=g) * 4
        y = x.sum(1, keepdim=True).sin() + 0.05 * x[:, :1] * torch.randn(64, 1, generator=g)
        yield x, y


def main():
    torch.manual_seed(15)
    net, nll = MeanVarianceNet(), GaussianNLL()
    opt = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 10))
    losses = []
    for x, y in batches(30):
        mu, log_var = net(x)
        loss = nll(mu, log_var, y)
        losses.append(loss.item())
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
    print(["%.3f" % v for v in losses[-5:]])


main()
