"""PPO on a toy continuous control problem, minibatches replayed from one rollout buffer."""
import math

import torch
import torch.nn as nn


class GaussianPolicy(nn.Module):
    def __init__(self, obs_dim: int, act_dim: int):
        super().__init__()
        self.mu = nn.Sequential(nn.Linear(obs_dim, 32), nn.Tanh(), nn.Linear(32, act_dim))
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))

    def log_prob(self, obs, act):
        z = (act - self.mu(obs)) / self.log_std.exp()
        return (-0.5 * z ** 2 - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


def collect(behaviour, n, generator):
    obs = torch.randn(n, 4, generator=generator)
    with torch.no_grad():
        noise = torch.randn(n, 2, generator=generator)
        act = behaviour.mu(obs) + behaviour.log_std.exp() * noise
        act[170] = obs[170, :2]
        reward = -(act - obs[:, :2]).pow(2).sum(-1)
        logp = behaviour.log_prob(obs, act)
    return obs, act, logp, reward


def ppo_loss(policy, obs, act, old_logp, adv, clip=0.2):
    new_logp = policy.log_prob(obs, act)
    ratio = torch.exp(new_logp - old_logp)
    clipped = ratio.clamp(1 - clip, 1 + clip)
    surrogate = torch.min(ratio * adv, clipped * adv)
    entropy = policy.log_std.sum()
    return -(surrogate.mean() + 0.01 * entropy)


def main():
    torch.manual_seed(9)
    g = torch.Generator().manual_seed(9)
    policy = GaussianPolicy(4, 2)
    with torch.no_grad():
        policy.log_std.fill_(-3.0)
    obs, act, old, reward = collect(policy, 256, g)
    adv = (reward - reward.mean()) / (reward.std() + 1e-8)
    with torch.no_grad():
        policy.log_std.fill_(-1.0)
    opt = torch.optim.Adam(policy.parameters(), lr=3e-4, eps=1e-5)
    for epoch in range(2):
        for mb in torch.arange(256).split(32):
            loss = ppo_loss(policy, obs[mb], act[mb], old[mb], adv[mb])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(policy.parameters(), 0.5)
            opt.step()
        print(f"epoch {epoch} surrogate loss {loss.detach():.5f}")


if __name__ == "__main__":
    main()
