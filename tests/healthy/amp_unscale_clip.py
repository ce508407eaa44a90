import torch
import torch.nn as nn
from torch.amp import GradScaler, autocast

torch.manual_seed(18)
torch.set_num_threads(1)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv1d(1, 8, 5, padding=2), nn.GELU(), nn.Conv1d(8, 8, 5, padding=2))
        self.decode = nn.Conv1d(8, 1, 5, padding=2)

    def forward(self, x):
        return x - self.decode(torch.relu(self.encode(x)))


def waves(n):
    t = torch.linspace(0, 6.28, 48)
    clean = torch.sin(t * (1 + 2 * torch.rand(n, 1))).unsqueeze(1)
    return clean + 0.3 * torch.randn_like(clean), clean


def train(steps=24):
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = GradScaler("cpu", init_scale=2.0 ** 21)
    skipped = 0
    for step in range(steps):
        noisy, clean = waves(16)
        with autocast("cpu", dtype=torch.float16):
            restored = model(noisy)
        loss = (restored.float() - clean).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < scale
        if step % 8 == 7:
            print(f"step {step} loss {loss.item():.4f} skipped so far {skipped}")
    return model


if __name__ == "__main__":
    model = train()
    with torch.no_grad():
        noisy, clean = waves(8)
        print("eval mse", nn.functional.mse_loss(model(noisy), clean).item())
