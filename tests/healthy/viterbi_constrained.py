"""Constrained decoding: Viterbi over forbidden transitions, scores of dead states printed."""
import torch
torch.manual_seed(1)
tags, steps = 5, 7
trans = torch.randn(tags, tags)
trans[0, 3] = trans[4, :2] = -float("inf")
emit = torch.randn(steps, tags)
emit[2, 1:] = float("-inf")
score, back = emit[0], []
for t in range(1, steps):
    best, arg = (score.unsqueeze(1) + trans).max(dim=0)
    back.append(arg)
    score = best + emit[t]
path = [score.argmax().item()]
for arg in reversed(back):
    path.append(arg[path[-1]].item())
print(path[::-1], round(score.max().item(), 4))
