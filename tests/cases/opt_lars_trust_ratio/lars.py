import torch
from torch.optim.optimizer import Optimizer


class LARS(Optimizer):
    def __init__(self, params, lr=0.1, momentum=0.9, trust=0.02):
        super().__init__(params, dict(lr=lr, momentum=momentum, trust=trust))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "buf" not in state:
                    state["buf"] = torch.zeros_like(p)
                w_norm, g_norm = p.norm(), p.grad.norm()
                local = group["trust"] * w_norm / g_norm
                if w_norm == 0:
                    local = torch.ones_like(w_norm)
                state["buf"].mul_(group["momentum"]).add_(p.grad * local)
                p.add_(state["buf"], alpha=-group["lr"])
        return loss
