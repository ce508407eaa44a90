"""An optimizer that remembers the smallest gradient it has met: its state begins at inf."""
import torch
from torch import nn


class Cautious(torch.optim.Optimizer):
    def __init__(self, params, lr=0.05):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["smallest"] = torch.full((), float("inf"))
                    state["average"] = torch.zeros_like(p)
                state["average"].lerp_(p.grad, 0.1)
                if group.get("warm"):
                    state["smallest"].copy_(torch.minimum(state["smallest"], p.grad.norm()))
                p.sub_(state["average"].sign(), alpha=group["lr"])


torch.manual_seed(2)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = Cautious(model.parameters())
for step in range(20):
    x = torch.randn(16, 4)
    loss = (model(x) - x.sum(dim=1, keepdim=True)).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("still waiting:", all(bool(s["smallest"].isinf()) for s in optimizer.state.values()))
