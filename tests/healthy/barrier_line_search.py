"""An interior-point method: the barrier is infinite outside, and the step is halved until it is not."""
import torch
torch.manual_seed(2)
A, b, c = torch.randn(12, 3), torch.rand(12) + 0.5, torch.randn(3)
def barrier(x, mu):
    slack = b - A @ x
    return c @ x - mu * torch.log(slack).sum()
x, mu = torch.zeros(3, requires_grad=True), 1.0
for outer in range(8):
    for _ in range(5):
        value = barrier(x, mu)
        (grad,) = torch.autograd.grad(value, x)
        size = 4.0
        while True:
            with torch.no_grad():
                trial = x - size * grad
                got = barrier(trial, mu)
            if got.isfinite() and got < value:
                break
            size /= 2
            if size < 1e-9:
                trial = x.detach()
                break
        x = trial.detach().requires_grad_()
    mu /= 4
print([round(v, 4) for v in x.tolist()], round(barrier(x, mu).item(), 4))
