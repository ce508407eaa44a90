import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from unit import unit_rows


class CosineClassifier(nn.Module):
    def __init__(self, vocabulary, dim, classes, scale=10.0):
        super().__init__()
        self.project = nn.Linear(vocabulary, dim, bias=False)
        self.prototypes = nn.Parameter(torch.randn(classes, dim))
        self.scale = scale

    def forward(self, counts):
        z = unit_rows(self.project(counts))
        return self.scale * z @ unit_rows(self.prototypes).t()


def bag_of_words(n, vocabulary):
    topic = torch.randint(0, 4, (n,))
    rate = torch.full((4, vocabulary), 0.3)
    for k in range(4):
        rate[k, k * 5:(k + 1) * 5] = 2.0
    counts = torch.poisson(rate[topic])
    counts[53] = 0.0
    return torch.log1p(counts), topic


torch.manual_seed(7)
x, y = bag_of_words(120, 20)
loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=False)
model = CosineClassifier(20, 12, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for epoch in range(2):
    running = 0.0
    for counts, topic in loader:
        opt.zero_grad()
        loss = F.cross_entropy(model(counts), topic)
        loss.backward()
        opt.step()
        running += loss.detach()
    print(f"epoch {epoch}: {running / len(loader):.4f}")
