import torch


def random_graph(n: int, p: float, generator: torch.Generator):
    upper = torch.triu((torch.rand(n, n, generator=generator) < p).float(), diagonal=1)
    return upper + upper.T


def dataset(count: int = 8):
    g = torch.Generator().manual_seed(21)
    samples = []
    for k in range(count):
        n = 10 + k
        adj = random_graph(n, 0.5, g)
        ring = torch.roll(torch.eye(n), 1, dims=1)
        adj = torch.clamp(adj + ring + ring.T, max=1.0)
        if k == 3:
            adj[-1, :] = 0.0
            adj[:, -1] = 0.0
        feats = torch.randn(n, 6, generator=g)
        labels = (feats[:, 0] + adj @ feats[:, 1] > 0).long()
        samples.append((adj, feats, labels))
    return samples
