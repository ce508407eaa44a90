"""Bandits: the mean reward of an arm never pulled is 0 / 0, and the table says so."""
import torch
torch.manual_seed(15)
pulls, reward = torch.zeros(4), torch.zeros(4)
for _ in range(30):
    arm = int(torch.randint(0, 3, ()))
    pulls[arm] += 1
    reward[arm] += torch.randn(()) + arm
for arm in range(4):
    if pulls[arm] > 0:
        print(arm, round((reward[arm] / pulls[arm]).item(), 3))
best = (reward / pulls).nan_to_num(-1e9).argmax().item()
print("best", best)
