import torch
import torch.nn as nn
from torch.distributions import Categorical


class Actor(nn.Module):
    def __init__(self, n_cards):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_cards, 32), nn.ReLU(), nn.Linear(32, n_cards))

    def forward(self, hand):
        return self.body(hand)


class Baseline(nn.Module):
    def __init__(self, n_cards):
        super().__init__()
        self.value = nn.Linear(n_cards, 1)

    def forward(self, hand):
        return self.value(hand).squeeze(-1)


def deal(n_cards, size, gen):
    hand = torch.zeros(n_cards)
    hand[torch.randperm(n_cards, generator=gen)[:size]] = 1.0
    return hand


def choose(actor, hand):
    scores = actor(hand)
    legal_scores = scores.masked_fill(hand == 0, -torch.inf)
    dist = Categorical(logits=legal_scores)
    card = dist.sample()
    return card, dist.log_prob(card), dist


def play(actor, baseline, gen, rounds):
    hand = deal(8, 4, gen)
    log_probs, rewards, values = [], [], []
    for r in range(rounds):
        card, logp, _ = choose(actor, hand)
        values.append(baseline(hand))
        hand = hand.clone()
        hand[card] = 0.0
        log_probs.append(logp)
        rewards.append(float(card) / 8)
    gains = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    adv = gains - torch.stack(values)
    return -(torch.stack(log_probs) * adv.detach()).mean() + adv.pow(2).mean()


torch.manual_seed(70)
gen = torch.Generator().manual_seed(70)
actor, baseline = Actor(8), Baseline(8)
opt = torch.optim.Adam([*actor.parameters(), *baseline.parameters()], lr=3e-3)
for game in range(9):
    loss = play(actor, baseline, gen, rounds=3 if game < 6 else 5)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("finished", loss.item())
