"""Average an ensemble of click models in log-odds space and write out calibrated scores."""
import json
import math

import torch
import torch.nn as nn


class ClickModel(nn.Module):
    def __init__(self, n_features, sharpness):
        super().__init__()
        self.linear = nn.Linear(n_features, 1)
        self.sharpness = sharpness

    def forward(self, x):
        return torch.sigmoid(self.sharpness * self.linear(x)).squeeze(-1)


def ensemble_scores(members, x, temperature):
    total = torch.zeros(len(x))
    for m in members:
        total += torch.logit(m(x))
    return torch.sigmoid(total / (len(members) * temperature)), total / len(members)


def main():
    torch.manual_seed(21)
    members = [ClickModel(12, s) for s in (1.0, 3.0, 25.0)]
    for m in members:
        m.eval()
    x = torch.randn(200, 12)
    never_shown = torch.zeros(200).bernoulli_(0.05).bool()
    with torch.no_grad():
        scores, log_odds = ensemble_scores(members, x, temperature=1.5)
        rank_key = scores.masked_fill(never_shown, -math.inf)
        best = rank_key.topk(5).indices
        report = [{"item": int(i), "score": round(float(scores[i]), 4)} for i in best]
    print(json.dumps(report))
    margins = log_odds[~never_shown].tolist()
    print("mean margin", sum(margins) / len(margins))


if __name__ == "__main__":
    main()
