"""A line search that steps out of the domain late, prints that, and comes back."""
import torch

x = torch.tensor([2.0])
for trial in range(14):
    shift = 3.0 if trial == 9 else 1.5
    value = torch.log(x - shift).sum().item()
    print("trial", trial, value)
