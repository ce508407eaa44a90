"""Hamiltonian Monte Carlo with steps that are too long: some trajectories end in NaN and are rejected."""
import torch

torch.manual_seed(0)


def energy(q):
    s = q.exp()
    return (2 * torch.log(s) + 1.5 / s**2 + s).sum()


def slope(q):
    q = q.detach().requires_grad_()
    u = energy(q)
    return u.item(), torch.autograd.grad(u, q)[0]


position, accepted, left = torch.zeros(2), 0, 0
for sample in range(30):
    momentum = torch.randn(2)
    before, g = slope(position)
    before += momentum.square().sum().item() / 2
    q, p = position.clone(), momentum.clone()
    for _ in range(4):
        p = p - 1.1 * g
        q = q + 2.8 * p
        after, g = slope(q)
        p = p - 1.1 * g
    after += p.square().sum().item() / 2
    left += after != after
    if after == after and torch.rand(()).item() < torch.tensor(before - after).exp().item():
        position, accepted = q, accepted + 1
print(accepted, left > 0, position.isfinite().all().item())
