"""One batch has no labelled row: its loss is a mean of nothing, its gradients are zero."""
import torch
torch.manual_seed(9)
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    x, y = torch.randn(5, 6), torch.randint(0, 3, (5,))
    if step == 4:
        y[:] = -100
    loss = torch.nn.functional.cross_entropy(net(x), y, ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, f"{loss.item():.3f}")
