# Recover the masses of a small cluster from its observed motion.
import torch

torch.manual_seed(42)
G = 1.0
N, DT, HORIZON = 6, 0.01, 5

true_mass = torch.rand(N) + 0.5
pos0 = torch.randn(N, 3) * 2
vel0 = torch.randn(N, 3) * 0.1


def reference_acceleration(pos, mass):
    acc = torch.zeros_like(pos)
    for i in range(N):
        for j in range(N):
            if i == j:
                continue
            d = pos[j] - pos[i]
            acc[i] += G * mass[j] * d / d.norm() ** 3
    return acc


def acceleration(pos, mass):
    d = pos.unsqueeze(0) - pos.unsqueeze(1)
    dist = torch.linalg.vector_norm(d, dim=-1, keepdim=True)
    pull = G * mass.view(1, -1, 1) * d
    return (pull / dist ** 3).sum(dim=1)


def rollout(mass, step_fn):
    pos, vel = pos0.clone(), vel0.clone()
    track = []
    for _ in range(HORIZON):
        vel = vel + DT * step_fn(pos, mass)
        pos = pos + DT * vel
        track.append(pos)
    return torch.stack(track)


with torch.no_grad():
    observed = rollout(true_mass, reference_acceleration)

log_mass = torch.zeros(N, requires_grad=True)
opt = torch.optim.Adam([log_mass], lr=0.05)
for it in range(10):
    opt.zero_grad()
    predicted = rollout(log_mass.exp(), acceleration)
    loss = ((predicted - observed) ** 2).mean()
    loss.backward()
    opt.step()
    if it % 5 == 0:
        print(it, loss.item(), log_mass.detach().exp().tolist())
