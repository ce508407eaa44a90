"""The best loss so far starts at inf and is saved with every checkpoint, at last a finite one."""
import os
import torch
torch.manual_seed(17)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
best = torch.tensor(torch.inf)
for epoch in range(5):
    for _ in range(4):
        x = torch.randn(16, 3)
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save({"best": best, "net": net.state_dict()}, "last.pt")
    best = torch.minimum(best, loss.detach())
    torch.save({"best": best, "net": net.state_dict()}, "last.pt")
print(round(best.item(), 4), round(torch.load("last.pt")["best"].item(), 4))
os.remove("last.pt")
