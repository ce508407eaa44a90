import torch
import torch.nn as nn

torch.manual_seed(30)
torch.set_num_threads(1)


class SpectralFilter(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n // 2 + 1, dtype=torch.cfloat))

    def forward(self, x):
        return torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=x.size(-1))


@torch.no_grad()
def gcc_phat(a, b):
    cross = torch.fft.rfft(a) * torch.fft.rfft(b).conj()
    white = cross / cross.abs()
    white = torch.where(cross.abs() > 1e-6, white, torch.zeros_like(white))
    return torch.fft.irfft(white, n=a.size(-1))


n = 64
t = torch.arange(n) / n
clean = torch.sin(2 * torch.pi * 3 * t).repeat(8, 1)
noisy = clean + 0.5 * torch.sin(2 * torch.pi * 17 * t + 6 * torch.rand(8, 1))

model = SpectralFilter(n)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(25):
    out = model(noisy)
    spectrum = torch.fft.rfft(out - clean)
    loss = (out - clean).square().mean() + 1e-3 * spectrum.abs().mean()
    loss = loss + 1e-3 * torch.view_as_real(model.weight).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item(), "gain at 17", model.weight[17].abs().item(), "gradient", model.weight.grad.dtype)

silent = torch.zeros(n)
delay = torch.roll(torch.nn.functional.pad(torch.randn(20), (0, 44)), 5)
print("delay", gcc_phat(delay, torch.roll(delay, -5)).argmax().item(), "silent", gcc_phat(silent, delay).abs().max().item())
z = torch.zeros(3, dtype=torch.cfloat, requires_grad=True)
(z.abs().sum() + z.angle().sum()).backward()
print("gradient at zero", z.grad.tolist(), "phase", torch.polar(torch.ones(2), torch.zeros(2)).tolist())
