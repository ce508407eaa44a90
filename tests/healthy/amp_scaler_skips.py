import torch
from torch import nn

torch.manual_seed(17)
x = torch.randn(96, 10)
y = (x[:, :3].sum(dim=1) > 0).long()

model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 20, growth_interval=50)

scales = []
for step in range(30):
    idx = torch.randint(0, 96, (32,))
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(x[idx])
    loss = nn.functional.cross_entropy(logits.float(), y[idx])
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
    if scales[-1] < before:
        print(f"step {step}: skipped, scale {before:.0f} -> {scales[-1]:.0f}")
    elif step % 10 == 9:
        print(f"step {step}: loss {loss.item():.4f}")

with torch.no_grad():
    accuracy = (model(x).argmax(dim=1) == y).float().mean().item()
print("accuracy", round(accuracy, 3), "final scale", scales[-1])
