# Relax the geometry of a small cluster of point charges.
import torch

torch.manual_seed(2)
torch.set_default_dtype(torch.float64)

n = 7
charges = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
start = torch.randn(n, 3) * 2.0
pos = start.clone().requires_grad_(True)
same = torch.eye(n, dtype=torch.bool)
pairs = torch.triu_indices(n, n, offset=1)


def pair_distances(p):
    delta = p[:, None, :] - p[None, :, :]
    d2 = (delta ** 2).sum(-1)
    return torch.where(same, torch.zeros_like(d2), d2.sqrt())


def potential(p):
    r = pair_distances(p)[pairs[0], pairs[1]]
    coulomb = charges[pairs[0]] * charges[pairs[1]] / r
    repulsion = (0.8 / r).pow(6)
    tether = 0.05 * (p - p.mean(0)).pow(2).sum()
    return (coulomb + repulsion).sum() + tether


opt = torch.optim.Adam([pos], lr=0.02)
energies = []
for it in range(25):
    opt.zero_grad()
    e = potential(pos)
    e.backward()
    opt.step()
    energies.append(e.detach())

trace = torch.stack(energies)
print("energy start", f"{trace[0]:.5f}", "end", f"{trace[-1]:.5f}")
print("moved", float((pos.detach() - start).norm()))
