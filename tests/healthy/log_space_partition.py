"""A CTC-like forward recursion by hand, -inf for unreachable states, trained."""
import torch
torch.manual_seed(11)
emit = torch.nn.Parameter(torch.randn(6, 4))
optimizer = torch.optim.Adam([emit], lr=0.1)
mask = torch.tensor([0.0, 0.0, -torch.inf, -torch.inf])
for step in range(10):
    logp = emit.log_softmax(-1)
    alpha = torch.cat([logp[0, :2], torch.full((2,), -torch.inf)])
    for t in range(1, 6):
        stay = alpha
        move = torch.cat([torch.full((1,), -torch.inf), alpha[:-1]])
        alpha = torch.logaddexp(stay.clamp(min=-1e30), move.clamp(min=-1e30)) + logp[t]
    loss = -alpha[-1]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(round(loss.item(), 4))
