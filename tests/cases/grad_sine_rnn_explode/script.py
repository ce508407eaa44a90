import torch
import torch.nn as nn
import torch.nn.functional as F


class SineCell(nn.Module):
    def __init__(self, n_in, n_hidden, omega=30.0):
        super().__init__()
        self.omega = omega
        self.read = nn.Linear(n_in, n_hidden)
        self.recur = nn.Linear(n_hidden, n_hidden, bias=False)

    def forward(self, x, h):
        drive = self.read(x)
        return torch.sin(self.omega * (self.recur(h) + drive))


class SineRNN(nn.Module):
    def __init__(self, n_in=3, n_hidden=32):
        super().__init__()
        self.cell = SineCell(n_in, n_hidden)
        self.head = nn.Linear(n_hidden, 1)
        self.n_hidden = n_hidden

    def forward(self, x):
        h = x.new_zeros(x.size(0), self.n_hidden)
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
        return self.head(h)


def load(n=32, length=48):
    t = torch.linspace(0, 6, length)
    freq = 0.5 + torch.rand(n, 1)
    wave = torch.stack([torch.sin(freq * t), torch.cos(freq * t), (freq * t).frac()], dim=-1)
    return wave, freq


torch.manual_seed(5)
x, y = load()
net = SineRNN()
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
for epoch in range(2):
    for i in range(0, 32, 16):
        prediction = net(x[i:i + 16])
        loss = F.smooth_l1_loss(prediction, y[i:i + 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.detach().item())
