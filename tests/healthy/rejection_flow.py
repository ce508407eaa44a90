"""Importance weights: samples outside of the support weigh exp(-inf) = 0."""
import torch
torch.manual_seed(21)
proposal = torch.distributions.Normal(0.0, 2.0)
x = proposal.sample((500,))
target = torch.distributions.Exponential(1.0, validate_args=False)
logw = torch.where(x >= 0, target.log_prob(x), -torch.inf) - proposal.log_prob(x)
w = logw.softmax(0)
print("mean", round((w * x).sum().item(), 3), "ess", round((1 / w.square().sum()).item(), 1))
print(logw.max().item() < 10, logw.min())
