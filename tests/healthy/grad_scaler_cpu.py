"""A GradScaler that starts much too high skips, then trains."""
import torch
torch.manual_seed(20)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=5)
skipped = 0
for step in range(25):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (net(x).squeeze() - x.sum(1)).square().mean() * 8
    optimizer.zero_grad()
    before = scaler.get_scale()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    skipped += scaler.get_scale() < before
    print(step, f"{norm.item():.3f}")
print("skipped", skipped)
