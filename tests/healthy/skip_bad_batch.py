import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(19)


class RateModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 20), nn.SiLU(), nn.Linear(20, 1))

    def forward(self, x):
        return nn.functional.softplus(self.body(x)).squeeze(-1) + 1e-3


def relative_log_error(pred, target):
    return torch.log(pred / target).abs().mean()


x = torch.randn(160, 5)
y = torch.exp(0.4 * x[:, 0] - 0.2 * x[:, 1])
y[[17, 90, 91]] = 0.0

loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
model = RateModel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(3):
    used, skipped, running = 0, 0, 0.0
    for xb, yb in loader:
        loss = relative_log_error(model(xb), yb)
        if not torch.isfinite(loss):
            skipped += 1
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        used += 1
    print(f"epoch {epoch}: {used} batches, {skipped} skipped, loss {running / used:.4f}")
