"""Embed a tree in the Poincare ball."""
import torch
import torch.nn as nn


def mobius_add(x, y):
    xy = (x * y).sum(-1, keepdim=True)
    x2 = (x * x).sum(-1, keepdim=True)
    y2 = (y * y).sum(-1, keepdim=True)
    num = (1 + 2 * xy + y2) * x + (1 - x2) * y
    return num / (1 + 2 * xy + x2 * y2).clamp_min(1e-9)


def distance(x, y):
    diff = mobius_add(-x, y)
    length = diff.norm(dim=-1).clamp_min(1e-9)
    return 2 * torch.atanh(length)


class TreeEmbedding(nn.Module):
    def __init__(self, n, dim=2):
        super().__init__()
        self.points = nn.Parameter(0.05 * torch.randn(n, dim))

    def forward(self, u, v, negatives):
        pu = self.points[u]
        d_pos = distance(pu, self.points[v])
        d_neg = distance(pu.unsqueeze(1), self.points[negatives])
        return (d_pos + torch.logsumexp(-d_neg, dim=1)).mean()


def binary_tree(depth):
    n = 2 ** depth - 1
    child = torch.arange(1, n)
    return n, child, (child - 1) // 2


def main():
    torch.manual_seed(6)
    n, child, parent = binary_tree(5)
    model = TreeEmbedding(n)
    opt = torch.optim.SGD(model.parameters(), lr=1.5)
    for epoch in range(60):
        perm = torch.randperm(len(child))
        negatives = torch.randint(0, n, (len(child), 8))
        loss = model(child[perm], parent[perm], negatives)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (epoch + 1) % 20 == 0:
            radius = model.points.detach().norm(dim=1)
            print(f"epoch {epoch + 1} largest radius {radius.max():.4f}")


if __name__ == "__main__":
    main()
