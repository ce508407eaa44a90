"""A GAN with a saturating logit and two optimizers in turn."""
import torch
torch.manual_seed(25)
G = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
D = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.LeakyReLU(), torch.nn.Linear(8, 1))
og, od = torch.optim.Adam(G.parameters(), 1e-2), torch.optim.Adam(D.parameters(), 1e-2)
bce = torch.nn.functional.binary_cross_entropy_with_logits
for step in range(20):
    real, z = torch.randn(32, 2) * 50 + 3, torch.randn(32, 2)
    d = bce(D(real), torch.ones(32, 1)) + bce(D(G(z).detach()), torch.zeros(32, 1))
    od.zero_grad(); d.backward(); od.step()
    g = bce(D(G(z)), torch.ones(32, 1))
    og.zero_grad(); g.backward(); og.step()
print(f"{d.item():.4f} {g.item():.4f}")
