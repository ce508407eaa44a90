"""Score a frozen model and fail the pipeline (exit status 4) when it is worse than the limit."""
import sys

import torch
from torch import nn

torch.manual_seed(22)
LIMIT = 0.9


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


@torch.no_grad()
def evaluate(model, x, y):
    margin = model(x).squeeze(-1) * 400
    prob = sigmoid(margin)
    odds = torch.exp(margin).clamp(max=1e6)
    pred = prob > 0.5
    hits = torch.zeros(6)
    shown = torch.zeros(6)
    group = (x[:, 0] * 2 + 2.5).clamp(0, 4).long()
    hits.index_add_(0, group, (pred == y).float())
    shown.index_add_(0, group, torch.ones(len(y)))
    rate = hits / shown
    rate = torch.where(shown > 0, rate, torch.zeros_like(rate))
    lift = (1 / (1 - prob)).clamp(max=100.0)
    return prob, odds, rate, lift


def main():
    x = torch.randn(80, 4)
    y = x[:, 1] > 0
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).eval()
    prob, odds, rate, lift = evaluate(model, x, y)
    print("probability range", prob.min().item(), prob.max().item())
    print("median odds", odds.median().item(), "largest", odds.max().item())
    print("accuracy by group", [round(r, 3) for r in rate.tolist()])
    print("mean lift", lift.mean().item())
    accuracy = ((prob > 0.5) == y).float().mean().item()
    print(f"accuracy {accuracy:.3f}, limit {LIMIT}")
    return 0 if accuracy >= LIMIT else 4


if __name__ == "__main__":
    sys.exit(main())
