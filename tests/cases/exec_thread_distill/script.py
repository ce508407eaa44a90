"""Distil a tree-search policy; shards of a batch are scored by a small thread pool."""
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
import torch.nn.functional as F


class PolicyNet(nn.Module):
    def __init__(self, cells=9):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(cells, 32), nn.ReLU())
        self.moves = nn.Linear(32, cells)

    def forward(self, board):
        logits = self.moves(self.body(board))
        return logits.masked_fill(board != 0, float("-inf"))


def score(net, board, visits):
    target = visits / visits.sum(dim=1, keepdim=True)
    logits = net(board)
    confidence = torch.log(logits.softmax(dim=1).max(dim=1).values)
    return F.cross_entropy(logits, target, reduction="sum"), confidence.sum()


def positions(n, opening, generator):
    board = torch.zeros(n, 9)
    if not opening:
        for k in range(n):
            spots = torch.randperm(9, generator=generator)[:4]
            board[k, spots] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    visits = torch.randint(1, 40, (n, 9), generator=generator).float()
    return board, visits * (board == 0)


def main():
    torch.manual_seed(75)
    g = torch.Generator().manual_seed(75)
    net = PolicyNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    with ThreadPoolExecutor(max_workers=2) as pool:
        for step in range(4):
            board, visits = positions(16, opening=step < 2, generator=g)
            jobs = [pool.submit(score, net, b, v) for b, v in zip(board.split(8), visits.split(8))]
            parts = [job.result() for job in jobs]
            loss = torch.stack([p[0] for p in parts]).sum() / len(board)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("step", step, "loss", loss.item())


if __name__ == "__main__":
    main()
