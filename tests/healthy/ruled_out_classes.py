"""Classes that are ruled out for good by -inf in parameters: a frozen one, and a layer's own bias
under an optimizer that is the program's own."""
import torch
from torch import nn


class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"])


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 8)
        banned = torch.zeros(8)
        banned[[6, 7]] = float("-inf")
        self.banned = nn.Parameter(banned, requires_grad=False)
        with torch.no_grad():
            self.layer.bias[5] = float("-inf")

    def forward(self, x):
        return (self.layer(x) + self.banned).log_softmax(-1)


torch.manual_seed(0)
for kind in (torch.optim.Adam, Plain):
    net = Head()
    optimizer = kind(net.parameters(), lr=0.05)
    for step in range(25):
        x = torch.randn(16, 6)
        loss = nn.functional.nll_loss(net(x), x[:, :5].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(kind.__name__, loss.item())
    print(net.layer.bias.detach().numpy().round(3))
