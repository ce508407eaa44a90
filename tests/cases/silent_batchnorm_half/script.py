import torch
import torch.nn as nn


class SpectralCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn_in = nn.BatchNorm2d(2)
        self.conv = nn.Conv2d(2, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = self.bn_in(x)
        x = torch.relu(self.bn(self.conv(x)))
        return self.fc(x.mean(dim=(2, 3)))


def scans(n):
    y = torch.randint(0, 3, (n,))
    x = torch.randn(n, 2, 6, 6)
    x[:, 1] = x[:, 1] * 430.0 + 50.0
    x[:, 0] += y.view(-1, 1, 1) * 0.8
    return x, y


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        logits = model(x.half()).float()
    model.train()
    return (logits.argmax(1) == y).float().mean()


torch.manual_seed(29)
x, y = scans(320)
held_x, held_y = scans(60)
model = SpectralCNN().half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    for xb, yb in zip(x.split(32), y.split(32)):
        logits = model(xb.half())
        loss = nn.functional.cross_entropy(logits.float(), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} train {loss.detach():.4f} accuracy {evaluate(model, held_x, held_y):.3f}")
