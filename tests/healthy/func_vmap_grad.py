import torch
import torch.nn as nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacrev, vmap

torch.manual_seed(29)


class SetScorer(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.score = nn.Linear(dim, 1)
        self.value = nn.Linear(dim, 3)

    def forward(self, x, keep):
        s = self.score(x).squeeze(-1)
        s = torch.where(keep, s, float("-inf"))
        w = torch.softmax(s, dim=-1)
        return w @ self.value(x)


model = SetScorer()
params = {k: v.detach() for k, v in model.named_parameters()}


def loss_fn(p, x, keep, y):
    logits = functional_call(model, p, (x, keep))
    return nn.functional.cross_entropy(logits.unsqueeze(0), y.unsqueeze(0))


x = torch.randn(10, 7, 6)
keep = torch.rand(10, 7) > 0.4
keep[:, 0] = True
y = torch.randint(0, 3, (10,))

per_sample = vmap(grad_and_value(loss_fn), in_dims=(None, 0, 0, 0))
for step in range(6):
    grads, losses = per_sample(params, x, keep, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    factor = (1.0 / norms).clamp(max=1.0)
    params = {k: p - 0.5 * torch.einsum("b,b...->...", factor, grads[k]) / 10 for k, p in params.items()}
    print(step, round(losses.mean().item(), 4), "largest sample norm", round(norms.max().item(), 4))


def energy(r):
    return torch.linalg.vector_norm(r) + (1 - torch.exp(-r.pow(2).sum())) ** 2


points = torch.cat([torch.zeros(1, 3), torch.randn(4, 3)])
force = vmap(grad(energy))(points)
print("force at the origin", force[0].tolist())
print("jacobian trace", jacrev(grad(lambda r: r.pow(4).sum()))(points[1]).trace().item())
print("hessian", hessian(lambda r: (r ** 2).sum())(points[0]).diagonal().tolist())
