import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

from layers import MeanConv, drop_edges


class GraphNet(nn.Module):
    def __init__(self, in_dim, hidden, classes):
        super().__init__()
        self.conv1 = MeanConv(in_dim, hidden)
        self.conv2 = MeanConv(hidden, classes)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x, edges):
        h = F.relu(self.norm(self.conv1(x, edges)))
        return self.conv2(h, edges)


def ring_of_cliques(k=6, size=5):
    pairs = []
    for c in range(k):
        base = c * size
        pairs += [(base + i, base + j) for i in range(size) for j in range(size) if i != j]
        nxt = ((c + 1) % k) * size
        pairs += [(base, nxt), (nxt, base)]
    return torch.tensor(pairs).t(), torch.arange(k).repeat_interleave(size) % 3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--drop", type=float, default=0.25)
    args = parser.parse_args()

    torch.manual_seed(7)
    edges, y = ring_of_cliques()
    x = F.one_hot(y, 3).float() + 0.5 * torch.randn(y.numel(), 3)
    x = torch.cat([x, torch.randn(y.numel(), 5)], dim=1)
    model = GraphNet(8, 16, 3)
    opt = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(args.epochs):
        model.train()
        logits = model(x, drop_edges(edges, args.drop))
        loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        acc = (model(x, edges).argmax(1) == y).float().mean()
    print(f"loss {loss:.4f} accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
