"""An adversarial attack: gradients of the input, best loss per sample from -inf."""
import torch
torch.manual_seed(26)
net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3)).eval()
x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
best = torch.full((8,), -torch.inf)
adv = x.clone()
for _ in range(10):
    adv.requires_grad_()
    loss = torch.nn.functional.cross_entropy(net(adv), y, reduction="none")
    best = torch.maximum(best, loss.detach())
    (g,) = torch.autograd.grad(loss.sum(), adv)
    adv = (adv.detach() + 0.1 * g / g.norm(dim=1, keepdim=True)).clamp(-3, 3)
print([round(v, 3) for v in best.tolist()])
