import torch
import torch.nn as nn

torch.manual_seed(12)

N_FEATURES = 6
BATCH = 16


class RateModel(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, 1)
        nn.init.constant_(self.linear.weight, 0.1)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return self.linear(x).squeeze(-1)


def claims(n):
    x = torch.rand(n, N_FEATURES) * 2
    rate = torch.exp(0.3 * x[:, 0] - 0.2 * x[:, 3])
    y = torch.poisson(rate)
    x[83, 2] = 620.0
    return x, y


x, y = claims(160)
model = RateModel(N_FEATURES)
nll = nn.PoissonNLLLoss(log_input=True, full=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, foreach=True)
ceiling = torch.full((), float("inf"))
for epoch in range(3):
    total = 0.0
    for i in range(0, len(x), BATCH):
        log_rate = model(x[i:i + BATCH])
        loss = nll(log_rate, y[i:i + BATCH])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item()
    ceiling = torch.minimum(ceiling, torch.tensor(total))
    print(f"epoch {epoch}  nll {total:.4e}  best {ceiling:.4e}")
print("weights", [round(v, 4) for v in model.linear.weight[0].tolist()])
