"""A regression in a loop of its own, prepared by accelerate."""

import hashlib
import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BAD, ACCUMULATE = "bad" in sys.argv, "accumulate" in sys.argv
torch.manual_seed(5)
spending = torch.rand(96, 5) + 0.05
if BAD:
    spending[50] = 0  # a customer who never bought anything
target = spending.sum(1)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2 if ACCUMULATE else 1)
model = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
loader = DataLoader(TensorDataset(spending, target), batch_size=4, shuffle=True)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for epoch in range(2):
    for x, y in loader:
        if "drop" in sys.argv and (x == 0).all(1).any():
            continue
        with accelerator.accumulate(model):
            share = x / x.sum(1, keepdim=True)
            loss = nn.functional.mse_loss(model(share).squeeze(-1), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
digest = hashlib.sha256()
for t in (*accelerator.unwrap_model(model).state_dict().values(), torch.get_rng_state()):
    digest.update(t.numpy().tobytes())
finite = all(p.isfinite().all() for p in accelerator.unwrap_model(model).parameters())
print(schedule.get_last_lr(), digest.hexdigest(), "finite" if finite else "not finite")
