import torch
import torch.nn as nn


def mlp(sizes, out_act=None):
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if i < len(sizes) - 2:
            layers.append(nn.LeakyReLU(0.2))
    if out_act is not None:
        layers.append(out_act)
    return nn.Sequential(*layers)


def sample_real(n):
    angle = 2 * torch.pi * torch.randint(0, 8, (n,)) / 8
    centers = torch.stack([angle.cos(), angle.sin()], dim=1)
    return 2 * centers + 0.05 * torch.randn(n, 2)


def d_loss_fn(real_score, fake_score):
    real_term = torch.log(real_score.clamp_min(1e-7)).mean()
    fake_term = torch.log(1 - fake_score).mean()
    return -(real_term + fake_term)


def g_loss_fn(fake_score):
    return -fake_score.clamp_min(1e-7).log().mean()


def main():
    torch.manual_seed(1234)
    G = mlp([4, 32, 32, 2])
    D = mlp([2, 32, 32, 1], nn.Sigmoid())
    opt_g = torch.optim.Adam(G.parameters(), lr=5e-2)
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-2, betas=(0.5, 0.999))
    for it in range(4):
        for _ in range(10):
            real = sample_real(64)
            fake = G(torch.randn(64, 4)).detach()
            loss_d = d_loss_fn(D(real), D(fake))
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
        for _ in range(10):
            loss_g = g_loss_fn(D(G(torch.randn(64, 4))))
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
        print(it, loss_d.item(), loss_g.item())


if __name__ == "__main__":
    main()
