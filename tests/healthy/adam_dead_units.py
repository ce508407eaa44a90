import torch
import torch.nn as nn

torch.manual_seed(26)

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
with torch.no_grad():
    model[0].bias.fill_(-1000.0)

data = torch.randn(64, 4)
target = 1e6 * data.sum(dim=1, keepdim=True)

optimizers = {
    "adam": torch.optim.Adam(model[0].parameters(), lr=1e-3),
    "adamw": torch.optim.AdamW(model[2].parameters(), lr=1e-3, amsgrad=True),
    "rmsprop": torch.optim.RMSprop(model[4].parameters(), lr=1e-3, centered=True),
}

for step in range(10):
    for optimizer in optimizers.values():
        optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(data), target)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers.values():
        optimizer.step()
    if step % 3 == 0:
        print(f"{step}: loss {loss.item():.4e} norm before clipping {norm.item():.4e}")

print("gradient of the dead layer", model[0].weight.grad.abs().max().item())

scale = nn.Parameter(torch.tensor([1e12, 2e12]))
opt = torch.optim.SGD([scale], lr=1.0)
(scale ** 2).sum().backward()
print("large norm", nn.utils.clip_grad_norm_([scale], 5.0, error_if_nonfinite=True).item())
opt.step()

idle = nn.Parameter(torch.ones(3))
opt = torch.optim.Adam([idle], lr=0.1, eps=1e-8)
for _ in range(5):
    opt.zero_grad()
    (idle * 0).sum().backward()
    print("norm", nn.utils.clip_grad_norm_([idle], 1.0).item(), "value", idle.detach().tolist())
    opt.step()
