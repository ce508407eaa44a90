from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn as nn
from torch.distributions import Categorical


@dataclass
class Rollout:
    obs: list = field(default_factory=list)
    legal: list = field(default_factory=list)
    actions: list = field(default_factory=list)
    rewards: list = field(default_factory=list)


class GridEnv:
    MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))

    def __init__(self, size: int, generator: torch.Generator):
        self.size, self.gen = size, generator
        self.reset()

    def reset(self):
        self.pos = [self.size // 2, self.size // 2]
        return self.observe()

    def observe(self):
        return torch.tensor(self.pos, dtype=torch.float32) / self.size

    def legal(self):
        return torch.tensor([all(0 <= p + d < self.size for p, d in zip(self.pos, m)) for m in self.MOVES])

    def step(self, a: int):
        self.pos = [p + d for p, d in zip(self.pos, self.MOVES[a])]
        return self.observe(), float(sum(self.pos)) / (2 * self.size)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
        self.actor = nn.Linear(32, 4)

    def forward(self, obs, legal):
        return self.actor(self.trunk(obs)).masked_fill(~legal, -1e9).softmax(dim=-1)


def entropy_bonus(probs: torch.Tensor) -> torch.Tensor:
    return -(probs * probs.log()).sum(-1).mean()


def main():
    torch.manual_seed(0)
    env, policy = GridEnv(7, torch.Generator().manual_seed(0)), Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=0.01)
    for episode in range(7):
        ro, obs = Rollout(), env.reset()
        for _ in range(3 + episode // 2):
            legal = env.legal()
            with torch.no_grad():
                action = Categorical(probs=policy(obs, legal)).sample().item()
            ro.obs.append(obs), ro.legal.append(legal), ro.actions.append(action)
            obs, reward = env.step(action)
            ro.rewards.append(reward)
        returns = torch.tensor(ro.rewards).flip(0).cumsum(0).flip(0)
        probs = policy(torch.stack(ro.obs), torch.stack(ro.legal))
        logp = Categorical(probs=probs).log_prob(torch.tensor(ro.actions))
        loss = -(logp * (returns - returns.mean())).mean() - 0.01 * entropy_bonus(probs)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"episode {episode} return {returns[0]:.2f}")


main()
