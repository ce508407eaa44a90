import torch
import torch.nn as nn
import torch.nn.functional as F


class AnchorHead(nn.Module):
    def __init__(self, channels=16, anchors=3):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, channels, 3, stride=2, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.objectness = nn.Conv2d(channels, anchors, 1)
        self.boxes = nn.Conv2d(channels, anchors * 4, 1)

    def forward(self, images):
        f = self.backbone(images)
        b = images.size(0)
        obj = self.objectness(f).permute(0, 2, 3, 1).reshape(b, -1)
        box = self.boxes(f).permute(0, 2, 3, 1).reshape(b, -1, 4)
        return obj, box


class DetectionLoss(nn.Module):
    def __init__(self, box_weight=2.0):
        super().__init__()
        self.box_weight = box_weight

    def forward(self, obj, box, target_obj, target_box):
        cls = F.binary_cross_entropy_with_logits(obj, target_obj, reduction="none")
        positive = target_obj > 0.5
        hardest = cls[~positive].topk(20).values.mean()
        found = cls[positive].sum() / positive.sum().clamp(min=1)
        residual = (box - target_box).abs()
        return found + hardest + self.box_weight * residual[positive].mean()


def scenes(n, gen):
    for i in range(n):
        images = torch.rand(2, 3, 16, 16, generator=gen)
        target_obj = (torch.rand(2, 48, generator=gen) < 0.06).float()
        if i == 9:
            target_obj.zero_()
        yield images, target_obj, torch.rand(2, 48, 4, generator=gen)


def main():
    torch.manual_seed(10)
    gen = torch.Generator().manual_seed(10)
    head, criterion = AnchorHead(), DetectionLoss()
    opt = torch.optim.SGD(head.parameters(), lr=0.01, momentum=0.9)
    best = float("inf")
    for images, t_obj, t_box in scenes(12, gen):
        loss = criterion(*head(images), t_obj, t_box)
        opt.zero_grad()
        loss.backward()
        opt.step()
        best = min(best, loss.item())
    print("best", best)


if __name__ == "__main__":
    main()
