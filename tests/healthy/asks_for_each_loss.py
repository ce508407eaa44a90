"""A loop that reads each loss, tests it, and leaves out the batches that have none."""
import math

import torch
from torch import nn

torch.manual_seed(5)
model = nn.Linear(5, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
kept, missing = 0.0, 0
for step in range(50):
    table = torch.randn(12, 5)
    if step % 16 == 9:
        table[3, 1] = float("nan")  # not measured
    loss = (model(table) - table[:, :1]).abs().mean()
    value = loss.item()
    if math.isnan(value) or math.isinf(value):
        missing += 1
        continue
    kept += value
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("missing", missing, "mean", round(kept / (50 - missing), 4))
