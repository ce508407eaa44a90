"""Monte Carlo tree search: unvisited actions have value inf, illegal ones -inf."""
import torch
torch.manual_seed(14)
net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 5)).eval()
legal = torch.tensor([1, 1, 0, 1, 0], dtype=torch.bool)
with torch.no_grad():
    prior = net(torch.randn(6)).masked_fill(~legal, -torch.inf).softmax(-1)
visits, total = torch.zeros(5), torch.zeros(5)
for i in range(40):
    mean = total / visits
    value = torch.where(visits > 0, mean, torch.inf)
    ucb = value + 2 * prior * (visits.sum() + 1).sqrt() / (1 + visits)
    action = ucb.masked_fill(~legal, -torch.inf).argmax()
    total[action] += torch.randn(()) * 0.1 + prior[action]
    visits[action] += 1
print(visits.tolist(), (total / visits).nan_to_num().tolist())
