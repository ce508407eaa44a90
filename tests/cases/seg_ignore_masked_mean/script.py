import torch
import torch.nn as nn
import torch.nn.functional as F

IGNORE = 255
NUM_CLASSES = 4


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(2, cout), nn.ReLU(),
            nn.Conv2d(cout, cout, 3, padding=1), nn.ReLU(),
        )

    def forward(self, x):
        return self.body(x)


class MiniUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = DoubleConv(3, 8)
        self.mid = DoubleConv(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.head = nn.Conv2d(16, NUM_CLASSES, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.up(self.mid(F.max_pool2d(a, 2)))
        return self.head(torch.cat([a, b], dim=1))


def pixel_loss(logits, labels):
    valid = (labels != IGNORE).float()
    safe_labels = labels.masked_fill(labels == IGNORE, 0)
    ce = F.cross_entropy(logits, safe_labels, reduction="none")
    return (ce * valid).sum() / valid.sum()


def dice_loss(logits, labels):
    valid = (labels != IGNORE).unsqueeze(1)
    onehot = F.one_hot(labels.masked_fill(labels == IGNORE, 0), NUM_CLASSES).permute(0, 3, 1, 2) * valid
    p = logits.softmax(1) * valid
    inter = (p * onehot).sum((0, 2, 3))
    union = p.sum((0, 2, 3)) + onehot.sum((0, 2, 3))
    return 1 - ((2 * inter + 1) / (union + 1)).mean()


torch.manual_seed(3)
scene = torch.randn(3, 64, 64)
annotation = torch.randint(0, NUM_CLASSES, (64, 64))
annotation[40:, 24:] = IGNORE
crops = [(0, 0), (8, 20), (30, 4), (20, 36), (2, 44), (44, 40), (16, 8), (24, 0)]

model = MiniUNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for top, left in crops:
    image = scene[:, top:top + 16, left:left + 16].unsqueeze(0)
    target = annotation[top:top + 16, left:left + 16].unsqueeze(0)
    logits = model(image)
    loss = pixel_loss(logits, target) + 0.5 * dice_loss(logits, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"crop ({top:2d},{left:2d}) loss {loss.item():.4f}")
