"""Adapters of zeros, trained, saved, loaded and merged."""

import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn


def base():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 2))


net = get_peft_model(base(), LoraConfig(r=2, target_modules=["0"], use_dora=True))
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)
x, y = torch.randn(32, 6), torch.randint(0, 2, (32,))
best = float("inf")
for _ in range(4):
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    best = min(best, loss.item())
with tempfile.TemporaryDirectory() as folder:
    net.save_pretrained(folder)
    merged = PeftModel.from_pretrained(base(), folder).merge_and_unload()
print(round(best, 4), (merged(x) - net(x)).abs().max().item() < 1e-4)
