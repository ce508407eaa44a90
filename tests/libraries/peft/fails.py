"""An adapter's second matrix starts at zero, and the penalty divides by its size."""

import torch
from peft import LoraConfig, get_peft_model
from torch import nn

torch.manual_seed(0)
base = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 2))
net = get_peft_model(base, LoraConfig(r=2, target_modules=["0"]))
layer = net.base_model.model[0]
down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-3)
x, y = torch.randn(32, 6), torch.randint(0, 2, (32,))


def balance():
    """Both matrices should be of one size."""
    a, b = down.pow(2).sum(), up.pow(2).sum()
    return (a / b - 1).abs()


for step in range(4):
    loss = nn.functional.cross_entropy(net(x), y) + 0.01 * balance()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
