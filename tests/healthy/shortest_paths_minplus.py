import torch

INF = float("inf")
EDGES = [(0, 1, 4.0), (0, 2, 1.0), (2, 1, 2.0), (1, 3, 5.0), (2, 3, 8.0), (3, 4, 3.0), (5, 6, 1.5)]
N = 7


def distance_matrix(n, edges):
    d = torch.full((n, n), INF)
    d.fill_diagonal_(0.0)
    for u, v, w in edges:
        d[u, v] = w
    return d


def min_plus(a, b):
    return (a.unsqueeze(2) + b.unsqueeze(0)).amin(dim=1)


def all_pairs(d):
    hops = 1
    while hops < d.size(0):
        d = min_plus(d, d)
        hops *= 2
    return d


def dijkstra(weights, source):
    dist = torch.full((weights.size(0),), torch.inf)
    dist[source] = 0
    done = torch.zeros(weights.size(0), dtype=torch.bool)
    for _ in range(weights.size(0)):
        u = int(torch.where(done, torch.inf, dist).argmin())
        done[u] = True
        if torch.isinf(dist[u]):
            break
        dist = torch.minimum(dist, dist[u] + weights[u])
    return dist


weights = distance_matrix(N, EDGES)
paths = all_pairs(weights)
print(paths)
for source in (0, 2, 5):
    single = dijkstra(weights, source)
    assert torch.equal(single, paths[source])
    for target, value in enumerate(single.tolist()):
        print(source, "->", target, "unreachable" if value == INF else value)
reachable = torch.isfinite(paths)
print("mean over reachable pairs", paths[reachable].mean().item())
print("eccentricity", paths.masked_fill(~reachable, 0).amax(dim=1).tolist())
