import torch
import torch.nn as nn


class ActorCritic(nn.Module):
    def __init__(self, obs=6, actions=3):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs, 32), nn.Tanh(), nn.Linear(32, actions))
        self.v = nn.Sequential(nn.Linear(obs, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return torch.log_softmax(self.pi(x), -1), self.v(x).squeeze(-1)


def collect(model, n):
    obs = torch.randn(n, 6)
    with torch.no_grad():
        logp, value = model(obs)
        act = torch.multinomial(logp.exp(), 1)
    reward = obs[:, :3].gather(1, act).squeeze(1)
    return obs, act, logp.gather(1, act).squeeze(1), reward - value, reward


def ppo_loss(model, obs, act, old_logp, adv, ret, clip=0.2):
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    logp, value = model(obs)
    ratio = (logp.gather(1, act).squeeze(1) - old_logp).clamp(-20, 20).exp()
    surrogate = torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv)
    entropy = -(logp.exp() * logp).sum(-1).mean()
    return -surrogate.mean() + 0.5 * (ret - value).pow(2).mean() - 0.01 * entropy


torch.manual_seed(88)
model = ActorCritic()
opt = torch.optim.Adam(model.parameters(), lr=3e-4, eps=1e-5)
for update in range(2):
    rollout = collect(model, 128 if update < 1 else 129)
    for epoch in range(2):
        for idx in torch.randperm(len(rollout[0])).split(32):
            loss = ppo_loss(model, *(t[idx] for t in rollout))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()
    print("update", update, "mean reward %.3f" % rollout[-1].mean().item())
