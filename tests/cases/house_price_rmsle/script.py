import torch
import torch.nn as nn

torch.manual_seed(9)
n, d = 256, 10
X = torch.rand(n, d)
coef = torch.rand(d)
price = (X @ coef) * 0.8 + 0.05 * torch.rand(n)
n_bedrooms = torch.randint(0, 5, (n,)).float()
X = torch.cat([X, n_bedrooms.log1p().unsqueeze(1)], dim=1)

model = nn.Sequential(
    nn.Linear(d + 1, 64), nn.ReLU(),
    nn.Linear(64, 64), nn.ReLU(),
    nn.Linear(64, 1), nn.Flatten(0),
)


def rmsle(pred, target):
    diff = pred.log1p() - target.log1p()
    return diff.pow(2).mean().sqrt()


opt = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.95)
for epoch in range(8):
    perm = torch.randperm(n)
    for start in range(0, n, 32):
        rows = perm[start:start + 32]
        loss = rmsle(model(X[rows]), price[rows])
        if start == 0:
            print(f"epoch {epoch} rmsle {loss:.4f}")
        opt.zero_grad()
        loss.backward()
        opt.step()
