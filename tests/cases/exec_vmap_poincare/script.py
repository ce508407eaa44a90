"""Private training of Poincare-ball embeddings with per-example gradients."""
import torch
from torch.func import grad, vmap


def hyperbolic_distance(u, v):
    gap = ((u - v) ** 2).sum()
    room = (1 - (u ** 2).sum()) * (1 - (v ** 2).sum())
    return torch.acosh(1 + 2 * gap / room)


def pair_loss(table, edge, sign):
    u, v = torch.index_select(table, 0, edge).unbind(0)
    d = hyperbolic_distance(u, v)
    return torch.nn.functional.softplus(sign * (d - 1.0))


per_example = vmap(grad(pair_loss), in_dims=(None, 0, 0))


def edges(n_nodes, count, generator):
    child = torch.randint(1, n_nodes, (count,), generator=generator)
    parent = (child - 1) // 2
    other = torch.randint(0, n_nodes, (count,), generator=generator)
    positive = torch.rand(count, generator=generator) < 0.5
    second = torch.where(positive, parent, other)
    clash = (second == child) & ~positive
    second = torch.where(clash, (second + 1) % n_nodes, second)
    sign = torch.where(positive, 1.0, -1.0)
    return torch.stack([child, second], dim=1), sign


def main():
    torch.manual_seed(72)
    g = torch.Generator().manual_seed(72)
    table = torch.nn.Parameter(0.05 * torch.randn(31, 4))
    optimizer = torch.optim.SGD([table], lr=0.3)
    edge, sign = edges(31, 160, g)
    edge[101] = torch.tensor([9, 9])
    for epoch in range(2):
        for e, s in zip(edge.split(16), sign.split(16)):
            rows = per_example(table.detach(), e, s)
            size = rows.flatten(1).norm(dim=1)
            factor = (0.5 / (size + 1e-6)).clamp(max=1.0)
            noise = 0.01 * torch.randn_like(table)
            table.grad = (rows * factor.view(-1, 1, 1)).mean(0) + noise
            optimizer.step()
        print("epoch", epoch, "mean radius", table.detach().norm(dim=1).mean().item())


if __name__ == "__main__":
    main()
