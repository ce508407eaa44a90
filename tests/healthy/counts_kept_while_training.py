import torch
from torch import nn

torch.manual_seed(8)
names = ["wheat", "maize", "barley", "fallow"]
x = torch.randn(240, 6)
y = (x @ torch.randn(6, 3)).argmax(dim=1)  # nothing is fallow this year

net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
hits = torch.zeros(4, dtype=torch.long)
support = torch.zeros(4, dtype=torch.long)
for step in range(40):
    rows = torch.randint(0, 240, (32,))
    scores = net(x[rows])
    loss = nn.functional.cross_entropy(scores, y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        right = scores.argmax(dim=1) == y[rows]
        hits += torch.bincount(y[rows][right], minlength=4)
        support += torch.bincount(y[rows], minlength=4)

recall = hits.float() / support.float()
for name, value in zip(names, recall.tolist()):
    print(f"{name:8s} {value:.3f}")
print(f"mean {recall.nanmean():.3f}")
