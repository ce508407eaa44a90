import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self, n_in=64, hidden=48, latent=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.to_mu = nn.Linear(hidden, latent)
        self.to_logvar = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, n_in))

    def encode(self, x):
        h = self.encoder(x)
        return self.to_mu(h), self.to_logvar(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + std * torch.randn_like(std)

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decoder(self.reparameterize(mu, logvar)), mu, logvar


def elbo(recon, x, mu, logvar, beta):
    rec = F.l1_loss(recon, x, reduction="sum") / len(x)
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / len(x)
    return rec + beta * kld


def main():
    torch.manual_seed(12)
    prototypes = torch.rand(5, 64)
    data = (prototypes[torch.randint(0, 5, (320,))] + 0.1 * torch.randn(320, 64)).clamp(0, 1)
    data[40] = (data[40] * 65535).round()
    vae = VAE()
    optimizer = torch.optim.Adam(vae.parameters(), lr=3e-3)
    for epoch in range(3):
        for batch in data[torch.randperm(320)].split(32):
            recon, mu, logvar = vae(batch)
            loss = elbo(recon, batch, mu, logvar, beta=min(1.0, 0.1 + 0.3 * epoch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.2f}")


main()
