import torch
from torch import nn

torch.manual_seed(6)


class MinMaxObserver(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("low", torch.tensor(float("inf")))
        self.register_buffer("high", torch.tensor(float("-inf")))

    def forward(self, x):
        if x.numel():
            self.low = torch.minimum(self.low, x.detach().amin())
            self.high = torch.maximum(self.high, x.detach().amax())
        return x

    def qparams(self):
        low, high = self.low.clamp(max=0), self.high.clamp(min=0)
        scale = ((high - low) / 255).clamp(min=1e-8)
        zero = torch.round(-low / scale).int().clamp(0, 255)
        return scale.item(), zero.item()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.observe_in, self.observe_mid = MinMaxObserver(), MinMaxObserver()
        self.observe_unused = MinMaxObserver()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        h = torch.relu(self.fc1(self.observe_in(x)))
        return self.fc2(self.observe_mid(h))


net = Net().eval()
print("before calibration", net.observe_in.low, net.observe_in.high)
with torch.no_grad():
    for batch in torch.randn(5, 32, 8):
        net(batch)

scale, zero = net.observe_in.qparams()
x = torch.randn(4, 8)
q = torch.quantize_per_tensor(x, scale, zero, torch.quint8)
codes = q.int_repr()
print("codes", codes.dtype, int(codes.min()), int(codes.max()), "sum", codes.long().sum().item())
print("quantisation error", (q.dequantize() - x).abs().max().item())

per_channel = torch.quantize_per_channel(
    net.fc1.weight.detach(), net.fc1.weight.detach().abs().amax(dim=1) / 127,
    torch.zeros(16, dtype=torch.long), axis=0, dtype=torch.qint8,
)
with torch.no_grad():
    moved = nn.functional.linear(q.dequantize(), per_channel.dequantize(), net.fc1.bias) - net.fc1(x)
print("activation shift", moved.abs().mean().item(), "saturated", bool((codes == 255).any()))
