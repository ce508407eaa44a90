"""Two batches make a step; the gradients of a bad one are thrown away."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
x = torch.randn(32, 4)
x[7] = float("inf")
loader = DataLoader(TensorDataset(x, torch.randn(32)), batch_size=4, shuffle=True)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
lowest, thrown = float("inf"), 0
for _ in range(2):
    for x, y in loader:
        with accelerator.accumulate(net):
            loss = (net(x - x.mean()).squeeze(1) - y).pow(2).mean()
            if not torch.isfinite(loss):
                optimizer.zero_grad()
                thrown += 1
                continue
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        lowest = min(lowest, loss.item())
print(thrown, round(lowest, 4))
