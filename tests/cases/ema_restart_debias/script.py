"""Mean teacher: a slow copy of the network labels what has no labels; restarted with the schedule."""
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DECAY = 0.9
RESTART_EVERY = 24


class Teacher:
    def __init__(self, student):
        self.net = copy.deepcopy(student).requires_grad_(False)
        self.sums = [torch.zeros_like(p) for p in student.parameters()]
        self.updates = 0

    @torch.no_grad()
    def update(self, student):
        for total, p in zip(self.sums, student.parameters()):
            total.mul_(DECAY).add_(p, alpha=1 - DECAY)
        self.updates += 1

    @torch.no_grad()
    def restart(self):
        for total in self.sums:
            total.zero_()
        self.updates = 0

    @torch.no_grad()
    def __call__(self, x):
        correction = 1 - DECAY**self.updates
        for total, p in zip(self.sums, self.net.parameters()):
            p.copy_(total / correction)
        return self.net(x)


def main():
    torch.manual_seed(3)
    x = torch.randn(256, 6)
    y = (x[:, :2].sum(1) > 0).long()
    student = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    teacher = Teacher(student)
    teacher.update(student)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    step = 0
    for epoch in range(2):
        for rows, labels in loader:
            if step and step % RESTART_EVERY == 0:
                teacher.restart()
            noisy = rows + 0.1 * torch.randn_like(rows)
            logits = student(noisy)
            supervised = nn.functional.cross_entropy(logits[:4], labels[:4])
            wanted = teacher(rows).softmax(1)
            consistency = (logits.softmax(1) - wanted).square().mean()
            loss = supervised + consistency
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            teacher.update(student)
            step += 1
        print(f"epoch {epoch}: {loss.detach():.4f}")


main()
