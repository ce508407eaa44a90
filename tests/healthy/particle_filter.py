"""A particle filter: weights underflow to log 0, and are normalised by logsumexp."""
import torch
torch.manual_seed(19)
truth, particles = 0.0, torch.randn(200)
for t in range(20):
    truth += 0.5
    particles = particles + 0.5 + 0.3 * torch.randn(200)
    like = torch.where((particles - truth).abs() < 2, 0.5, 0.0).log()
    weight = (like - like.logsumexp(0)).exp()
    particles = particles[torch.multinomial(weight, 200, replacement=True)]
print(round(particles.mean().item(), 2), truth)
