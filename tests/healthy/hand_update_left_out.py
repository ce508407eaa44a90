"""Gradient descent by hand on plain tensors; an update that would spoil the weights is left out."""
import torch

torch.manual_seed(11)
slope = torch.zeros(3, requires_grad=True)
dropped = []
for step in range(36):
    x = torch.randn(12, 3)
    if step % 14 == 9:
        x[5] *= 1e24  # a reading beyond every scale
    error = x @ slope - x.sum(dim=1)
    loss = error.pow(2).mean()
    loss.backward()
    with torch.no_grad():
        if bool(slope.grad.isfinite().all()) and bool(loss.isfinite()):
            slope -= 0.1 * slope.grad
        else:
            dropped.append(step)
        slope.grad.zero_()
print("dropped", dropped, [round(v, 3) for v in slope.tolist()])
