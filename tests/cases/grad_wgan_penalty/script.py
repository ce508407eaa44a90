import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = mlp([2, 32, 32])
        self.score = nn.Linear(32, 1)
        nn.init.zeros_(self.score.weight)

    def forward(self, x):
        return self.score(F.leaky_relu(self.features(x), 0.2)).squeeze(1)


def gradient_penalty(critic, real, fake):
    eps = torch.rand(real.size(0), 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    grads = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)[0]
    slope = torch.sqrt(torch.sum(grads ** 2, dim=1))
    return ((slope - 1.0) ** 2).mean()


def ring(n):
    phi = torch.rand(n) * 6.2832
    return torch.stack([phi.cos(), phi.sin()], dim=1) + 0.05 * torch.randn(n, 2)


def main():
    torch.manual_seed(13)
    gen, critic = mlp([4, 32, 2]), Critic()
    opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))

    for _ in range(3):
        opt_g.zero_grad()
        spread = gen(torch.randn(64, 4))
        warm = (spread.norm(dim=1) - 1.0).abs().mean() - 0.1 * spread.std(0).log().sum()
        warm.backward()
        opt_g.step()

    for it in range(6):
        for _ in range(2):
            real, fake = ring(64), gen(torch.randn(64, 4)).detach()
            c_loss = critic(fake).mean() - critic(real).mean()
            c_loss = c_loss + 10.0 * gradient_penalty(critic, real, fake)
            opt_c.zero_grad()
            c_loss.backward()
            opt_c.step()
        g_loss = -critic(gen(torch.randn(64, 4))).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
    print("critic", c_loss.item(), "generator", g_loss.item())


if __name__ == "__main__":
    main()
