import heapq
import math
import statistics

GRAPH = {
    "a": {"b": 7, "c": 9, "f": 14},
    "b": {"c": 10, "d": 15},
    "c": {"d": 11, "f": 2},
    "d": {"e": 6},
    "f": {"e": 9},
    "e": {},
    "island": {"island2": 1},
    "island2": {},
}


def dijkstra(graph, source):
    dist = dict.fromkeys(graph, math.inf)
    dist[source] = 0
    queue = [(0, source)]
    while queue:
        d, u = heapq.heappop(queue)
        if d > dist[u]:
            continue
        for v, w in graph[u].items():
            if d + w < dist[v]:
                dist[v] = d + w
                heapq.heappush(queue, (dist[v], v))
    return dist


def main():
    distances = dijkstra(GRAPH, "a")
    for node, d in distances.items():
        print(f"a -> {node}: {d}")
    finite = [d for d in distances.values() if math.isfinite(d)]
    print("mean", statistics.fmean(finite), "worst", max(distances.values()))
    sensor = [1.5, float("nan"), 2.5]
    print("raw", sensor, "mean of valid", statistics.fmean(v for v in sensor if v == v))
    print("inf - inf =", math.inf - math.inf)


if __name__ == "__main__":
    main()
