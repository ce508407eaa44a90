"""Stage one: compute image features and cache them."""
import sys

import torch

torch.manual_seed(1)
images = torch.rand(90, 3, 8, 8)
images[62] = 0.5
flat = images.flatten(1)
contrast = (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True)
labels = (images.mean(dim=(1, 2, 3)) > 0.5).long()
torch.save({"features": contrast[:, :48].clone(), "labels": labels}, sys.argv[1])
