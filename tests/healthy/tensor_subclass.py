import torch
import torch.nn as nn

torch.manual_seed(33)


class Quantity(torch.Tensor):
    """A tensor that remembers its unit through arithmetic."""

    @staticmethod
    def __new__(cls, data, unit="1"):
        obj = torch.as_tensor(data).as_subclass(cls)
        obj.unit = unit
        return obj

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, cls):
            units = [a.unit for a in args if isinstance(a, cls) and hasattr(a, "unit")]
            out.unit = units[0] if units else "1"
        return out


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3))
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return x * self.gain + self.bias


raw = torch.randn(50, 3) * 20 + 290
raw[::9, 1] = float("nan")
raw[4, 2] = float("inf")
reading = Quantity(raw, unit="K")
ok = torch.isfinite(reading)
print("unit", reading.unit, "usable", int(ok.sum()), type(ok).__name__)

fill = Quantity(raw[torch.isfinite(raw)].mean(), unit="K")
clean = torch.where(ok, reading, fill)
scaled = (clean - 290) / 20
truth = 2 * scaled.as_subclass(torch.Tensor) - 0.5

probe = Probe()
optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
for step in range(20):
    out = probe(scaled)
    loss = (out - truth).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(type(loss).__name__, getattr(scaled, "unit", None), round(loss.item(), 5))
print([round(g, 3) for g in probe.gain.tolist()])
