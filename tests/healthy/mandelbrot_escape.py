"""Escape times: points outside the set run off to inf and NaN, and are not counted any more."""
import torch

re, im = torch.meshgrid(torch.linspace(-2, 1, 24), torch.linspace(-1, 1, 16), indexing="ij")
x, y = torch.zeros_like(re), torch.zeros_like(im)
steps = torch.zeros_like(re)
for _ in range(50):
    x, y = x * x - y * y + re, 2 * x * y + im
    steps += x * x + y * y < 4
print(int(steps.sum()), int((steps == 50).sum()))
