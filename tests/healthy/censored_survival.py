"""Survival times: the censored end at inf; Kaplan-Meier and a Cox loss train on it."""
import torch
torch.manual_seed(28)
x = torch.randn(40, 3)
time = torch.rand(40) * 10
end = torch.where(torch.rand(40) < 0.3, torch.inf, time)
event = end.isfinite()
w = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.LBFGS([w], max_iter=5, line_search_fn="strong_wolfe")
order = end.argsort(descending=True)
def closure():
    optimizer.zero_grad()
    risk = (x @ w)[order]
    loss = -((risk - risk.logcumsumexp(0))[event[order]]).mean()
    loss.backward()
    return loss
for _ in range(5):
    loss = optimizer.step(closure)
print(f"{loss.item():.4f}")
