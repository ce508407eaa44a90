import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true", default=True)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--steps", type=int, default=6)
args = parser.parse_args()


class Reviews(nn.Module):
    def __init__(self, vocab=200, dim=24):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, dim, mode="mean")
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, 2)

    def forward(self, ids):
        return self.out(self.norm(self.bag(ids)))


torch.manual_seed(20)
ids = torch.randint(0, 200, (240, 12))
labels = (ids.float().mean(1) > 100).long()

net = Reviews()
if args.fp16:
    net = net.half()
opt = torch.optim.Adam(net.parameters(), lr=args.lr)
losses = []
for step in range(args.steps):
    pick = torch.randint(0, 240, (40,))
    logits = net(ids[pick]).float()
    loss = F.cross_entropy(logits, labels[pick])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.detach())
print("losses", torch.stack(losses))
