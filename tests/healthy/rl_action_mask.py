import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(13)


class Corridor:
    """Walk from 0 to 5. Going left is illegal at 0, the jump is legal on even cells only."""

    def reset(self):
        self.pos, self.t = 0, 0
        return self.observe()

    def observe(self):
        onehot = torch.zeros(6)
        onehot[self.pos] = 1
        legal = torch.tensor([self.pos > 0, True, self.pos % 2 == 0 and self.pos < 4])
        return onehot, legal

    def step(self, action):
        self.pos = min(5, max(0, self.pos + (-1, 1, 2)[action]))
        self.t += 1
        done = self.pos == 5 or self.t >= 12
        return (*self.observe(), 1.0 if self.pos == 5 else -0.1, done)


policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
env = Corridor()

for episode in range(25):
    obs, legal = env.reset()
    log_probs, entropies, rewards, done = [], [], [], False
    while not done:
        logits = policy(obs).masked_fill(~legal, float("-inf"))
        dist = Categorical(logits=logits)
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        entropies.append(dist.entropy())
        obs, legal, reward, done = env.step(int(action))
        rewards.append(reward)
    returns, g = [], 0.0
    for r in reversed(rewards):
        g = r + 0.97 * g
        returns.insert(0, g)
    returns = torch.tensor(returns)
    if len(returns) > 1:
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = -(torch.stack(log_probs) * returns).sum() - 0.01 * torch.stack(entropies).sum()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    if episode % 6 == 0:
        print(f"episode {episode:2d}  steps {len(rewards):2d}  return {sum(rewards):.2f}  loss {loss.item():.3f}")
