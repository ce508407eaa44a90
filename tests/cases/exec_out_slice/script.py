"""Score portfolios from price windows; features are written into one reusable buffer."""
import argparse

import torch
import torch.nn as nn


class WindowFeatures(nn.Module):
    def __init__(self, capacity: int):
        super().__init__()
        self.register_buffer("buffer", torch.empty(capacity, 4), persistent=False)

    @torch.no_grad()
    def forward(self, prices):
        n = len(prices)
        out = self.buffer[:n]
        returns = prices[:, 1:] / prices[:, :-1] - 1.0
        spread = returns.std(dim=1)
        drift = returns.mean(dim=1)
        torch.div(drift, spread, out=out[:, 0])
        out[:, 1] = torch.log(prices[:, -1] / prices[:, 0])
        out[:, 2] = spread.mul(100)
        out[:, 3] = returns.amax(dim=1) / (returns.abs().amax(dim=1) + 1e-9)
        return out


class Scorer(nn.Module):
    def __init__(self, capacity: int):
        super().__init__()
        self.features = WindowFeatures(capacity)
        self.rank = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, prices):
        return self.rank(self.features(prices)).squeeze(-1)


def market(n, length):
    shocks = 0.02 * torch.randn(n, length)
    prices = 50 * torch.exp(torch.cumsum(shocks, dim=1))
    prices[n - 5] = 50.0
    return prices


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=24)
    args = parser.parse_args()
    torch.manual_seed(80)
    prices = market(90, 12)
    scorer = Scorer(args.batch).eval()
    scores = []
    with torch.inference_mode():
        for chunk in prices.split(args.batch):
            scores.append(scorer(chunk))
    scores = torch.cat(scores)
    best = torch.topk(scores, 3)
    print("top portfolios", best.indices.tolist(), "mean score", scores.mean().item())


if __name__ == "__main__":
    main()
