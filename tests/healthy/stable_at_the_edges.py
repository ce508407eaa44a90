import torch
from whynan import stable

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Linear(4, 6)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
mask = torch.rand(8, 6) > 0.5
mask[2] = False
nothing = torch.full((8, 6), -float("inf"))
for step in range(4):
    x = torch.randn(8, 4)
    x[0] = 0.0
    scores = net(x)
    units = torch.relu(scores)
    hidden = scores.masked_fill(~mask, -float("inf"))
    loss = stable.safe_sqrt(units).mean() + stable.safe_div(scores, units.floor()).mean()
    loss = loss + stable.safe_pow(units, 0.3).mean() + stable.safe_log(units, floor=1e-6).mean()
    loss = loss + stable.masked_softmax(scores, mask).pow(2).sum()
    loss = loss + stable.safe_norm(units * 0).sum() + stable.normalize(units * mask).sum()
    loss = loss + stable.cosine_similarity(units, scores * mask).sum()
    loss = loss + stable.angle_between(units, units).sum() + stable.clip_norm(scores * 1e20, 1.0).sum()
    loss = loss + stable.safe_atan2(units, units * 0).mean() + stable.log_cosh(scores * 100).mean()
    loss = loss + stable.logsubexp(scores, nothing).mean() + stable.log1mexp(-units - 1e-3).mean()
    loss = loss + stable.entropy_from_logits(hidden[:2]).sum()
    loss = loss + stable.kl_from_logits(hidden[:2], scores[:2]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
