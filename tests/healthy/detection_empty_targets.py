import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(32)
torch.set_num_threads(1)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU())
        self.obj = nn.Conv2d(8, 1, 1)
        self.box = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.obj(h).flatten(1), self.box(h).flatten(2).transpose(1, 2)


def scene(boxes):
    image = torch.zeros(1, 8, 8)
    cells = torch.zeros(16, dtype=torch.bool)
    targets = torch.zeros(0, 4)
    for k in range(boxes):
        r, c = (int(v) for v in torch.randint(0, 4, (2,)))
        if not cells[r * 4 + c]:
            image[0, 2 * r:2 * r + 2, 2 * c:2 * c + 2] = 1
            cells[r * 4 + c] = True
    picked = cells.nonzero().squeeze(1)
    if len(picked):
        targets = torch.stack([picked // 4, picked % 4, torch.ones_like(picked), torch.ones_like(picked)], 1).float()
    return image, cells, targets


model = Detector()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(18):
    images, cells, targets = zip(*(scene(step % 3) for _ in range(4)))
    obj, box = model(torch.stack(images))
    cells = torch.stack(cells)
    positives = box[cells]
    goal = torch.cat(targets)
    count = max(int(cells.sum()), 1)
    box_loss = F.smooth_l1_loss(positives, goal, reduction="sum") / count
    loss = F.binary_cross_entropy_with_logits(obj, cells.float()) + 0.1 * box_loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        print(step, "objects", int(cells.sum()), "box loss", box_loss.item(), "loss", round(loss.item(), 4))

nothing = torch.empty(0, 4)
print(nothing.sum().item(), nothing.prod().item(), nothing.norm().item(), nothing.sum(dim=0).tolist())
print(torch.cat([nothing, torch.ones(1, 4)]).mean().item(), torch.zeros(0).logsumexp(0).exp().item())
ids = torch.randint(0, 2 ** 40, (5,))
print((ids >> 20).tolist(), (ids % 7 == 0).any().item(), torch.bitwise_xor(ids, ids).sum().item())
