# Logistic regression on one-hot encoded survey answers, optimised by hand.
import torch
import torch.nn.functional as F

torch.manual_seed(33)


def encode(answers, levels):
    return torch.cat([F.one_hot(answers[:, j], levels).float() for j in range(answers.shape[1])], dim=1)


answers = torch.randint(0, 3, (200, 4))
features = encode(answers, 4)
target = ((answers[:, 0] == 2) | (answers[:, 2] == 0)).float()

weight = torch.zeros(features.shape[1], 1, requires_grad=True)
bias = torch.zeros(1, requires_grad=True)
params = [weight, bias]
square = [torch.zeros_like(p) for p in params]
decay, rate = 0.9, 0.02

for epoch in range(4):
    for rows in torch.randperm(200).split(50):
        score = (features[rows] @ weight + bias).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(score, target[rows])
        for p in params:
            p.grad = None
        loss.backward()
        with torch.no_grad():
            for p, v in zip(params, square):
                v.mul_(decay).addcmul_(p.grad, p.grad, value=1 - decay)
                p -= rate * p.grad / v.sqrt()
    print(f"epoch {epoch}: loss {loss.detach().item():.4f}")
