"""Perplexity overflows in the first epochs, is printed, and is finite later."""
import torch
torch.manual_seed(24)
net = torch.nn.Linear(6, 10)
with torch.no_grad():
    net.weight.mul_(200)
optimizer = torch.optim.Adam(net.parameters(), lr=2.0)
x = torch.randn(64, 6)
y = x @ torch.randn(6, 10)
y = y.argmax(1)
for epoch in range(6):
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        nll = torch.nn.functional.cross_entropy(net(x), y)
    print(epoch, "perplexity", round(nll.exp().item(), 3))
