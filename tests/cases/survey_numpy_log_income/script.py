import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(123)


def survey(n):
    age = rng.integers(18, 80, n)
    income = rng.gamma(2.0, 1500.0, n)
    hours = rng.normal(38, 6, n)
    income[rng.integers(0, n, 3)] = -1.0
    satisfied = (hours < 40) & (age > 30)
    return age, income, hours, satisfied


def features(age, income, hours):
    with np.errstate(all="ignore"):
        cols = [age / 100.0, np.log(income) / 10.0, (hours - hours.mean()) / hours.std()]
        bonus = np.where(income > 0, 1.0 / income, 0.0)
    return np.column_stack(cols + [bonus]).astype(np.float32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(4, 24)
        self.l2 = nn.Linear(24, 2)

    def forward(self, x):
        return self.l2(torch.sigmoid(self.l1(x)))


age, income, hours, satisfied = survey(200)
X = torch.from_numpy(features(age, income, hours))
y = torch.from_numpy(satisfied.astype(np.int64))
torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=0.01)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(2):
    for i in range(0, 200, 40):
        opt.zero_grad()
        loss = loss_fn(net(X[i:i + 40]), y[i:i + 40])
        loss.backward()
        opt.step()
print("loss", loss.item())
