"""Hamiltonian Monte Carlo: a trajectory that diverges to NaN is rejected, and the step size adapts."""
import math
import torch
torch.manual_seed(4)
def potential(q):
    return (q[0] ** 4 * torch.exp(q[1]) + q[1] ** 2 / 2 + q[0] ** 2).sum()
def grad(q):
    q = q.detach().requires_grad_()
    u = potential(q)
    (g,) = torch.autograd.grad(u, q)
    return u.item(), g
q, eps, kept = torch.tensor([1.0, 0.5]), 1.5, 0
for i in range(60):
    p = torch.randn(2) * 3
    u0, g = grad(q)
    h0 = u0 + 0.5 * p.dot(p).item()
    z, m = q.clone(), p - eps / 2 * g
    for _ in range(8):
        z = z + eps * m
        u, g = grad(z)
        m = m - eps * g
    h = u + 0.5 * m.dot(m).item()
    d = h0 - h
    if not math.isnan(d) and math.log(torch.rand(()).item()) < d:
        q, kept = z, kept + 1
        eps *= 1.05
    else:
        eps *= 0.9
print(kept, round(eps, 4), [round(v, 3) for v in q.tolist()])
