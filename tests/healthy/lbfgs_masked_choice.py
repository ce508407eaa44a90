"""Choice model fitted with LBFGS: unavailable alternatives have utility -inf, and probability 0."""
import torch

torch.manual_seed(0)
features = torch.randn(120, 5, 3)
available = torch.rand(120, 5) > 0.3
available[:, 0] = True
taste = torch.tensor([1.0, -0.5, 2.0])
utility = (features @ taste).masked_fill(~available, float("-inf"))
chosen = torch.distributions.Categorical(logits=utility).sample()

weights = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.LBFGS([weights], line_search_fn="strong_wolfe", max_iter=10)


def closure():
    optimizer.zero_grad()
    logits = (features @ weights).masked_fill(~available, float("-inf"))
    loss = torch.nn.functional.cross_entropy(logits, chosen)
    loss.backward()
    return loss


for round_ in range(8):
    loss = optimizer.step(closure)
    print(f"{round_}: {loss.item():.5f}")
print("largest probability of what is not there", utility.softmax(1)[~available].max().item())
