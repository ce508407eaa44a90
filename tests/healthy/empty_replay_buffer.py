import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(16)


class ReplayBuffer:
    def __init__(self, capacity, obs_dim):
        self.obs = torch.empty(capacity, obs_dim)
        self.nxt = torch.empty_like(self.obs)
        self.reward = torch.empty(capacity)
        self.action = torch.empty(capacity, dtype=torch.long)
        self.done = torch.empty(capacity, dtype=torch.bool)
        self.capacity, self.size, self.head = capacity, 0, 0

    def push(self, obs, action, reward, nxt, done):
        i = self.head
        self.obs[i], self.nxt[i] = obs, nxt
        self.action[i], self.reward[i], self.done[i] = action, reward, done
        self.head = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n):
        idx = torch.randint(0, self.size, (n,))
        return self.obs[idx], self.action[idx], self.reward[idx], self.nxt[idx], self.done[idx]


scratch = [torch.full((500, 6), float("nan")) for _ in range(4)]
del scratch

buffer = ReplayBuffer(500, 6)
q = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))
target = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))
target.load_state_dict(q.state_dict())
optimizer = torch.optim.Adam(q.parameters(), lr=1e-2)

obs = torch.randn(6)
for t in range(120):
    action = int(torch.randint(0, 2, ()))
    nxt = 0.9 * obs + 0.1 * torch.randn(6)
    buffer.push(obs, action, float(nxt[action]), nxt, t % 20 == 19)
    obs = torch.randn(6) if t % 20 == 19 else nxt
    if t >= 60 and t % 3 == 0:
        o, a, r, n, d = buffer.sample(16)
        with torch.no_grad():
            goal = r + 0.9 * target(n).amax(dim=1) * (~d)
        loss = F.smooth_l1_loss(q(o).gather(1, a[:, None]).squeeze(1), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

mean = torch.mean(buffer.obs[:buffer.size], dim=0, out=torch.empty(6))
work = torch.empty(2, 6)
work[0].copy_(mean)
work[1].fill_(1.0)
print("loss", loss.item(), "stored", buffer.size, "norms", torch.empty(2).copy_(work.norm(dim=1)).tolist())
