"""Distils a teacher into a small student; after some steps the loss is inf.

whynan run examples/distill.py
"""

import torch
import torch.nn as nn


class Student(nn.Module):
    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_features, 64), nn.ReLU())
        self.head = nn.Linear(64, n_classes)

    def forward(self, x):
        return self.head(self.body(x))


def distillation_loss(logits, teacher_probs, temperature):
    student_probs = (logits / temperature).softmax(dim=-1)
    return -(teacher_probs * student_probs.log()).sum(dim=-1).mean()


def main():
    torch.manual_seed(0)
    student = Student(20, 10)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.02, momentum=0.9)
    for step in range(200):
        x = torch.randn(32, 20)
        teacher_probs = torch.nn.functional.one_hot(x[:, :10].argmax(-1), 10).float()
        loss = distillation_loss(student(x), teacher_probs, temperature=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.detach():.3f}")


if __name__ == "__main__":
    main()
