import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(41)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x):
        return self.fc(x)


def report(model, x):
    scores = model(x)
    return torch.log(scores / scores.sum(dim=1, keepdim=True) - 2)


def train(model, x, y, tolerance=0.35):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    previous = float("inf")
    for epoch in range(200):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        current = loss.item()
        if current < tolerance:
            print(f"converged in epoch {epoch}: {current:.4f} (was {previous:.4f})")
            sys.exit(0)
        previous = current
    return previous


x = torch.randn(60, 5)
y = x[:, :3].argmax(dim=1)
model = Embedder()
final = train(model, x, y)
print("did not converge", final)
print(report(model, torch.zeros(4, 5) - 1.0))
