"""Four training steps of the sort people run: MLP, CNN, GPT and LSTM."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], None]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.after = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.before(x)).view(b, t, 3, self.heads, c // self.heads).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.after(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, width: int, depth: int, length: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(depth)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.head(self.blocks(x))


class Recurrent(nn.Module):
    def __init__(self, features: int, width: int, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.last = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.last(self.second(torch.relu(self.norm(self.first(x))))))


def _step(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def mlp(scale: int = 1) -> Step:
    width = 256 * scale
    model = nn.Sequential(
        nn.Linear(128, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    return _step(
        model, torch.randn(64 * scale * scale, 128), torch.randint(0, 10, (64 * scale * scale,))
    )


def cnn(scale: int = 1) -> Step:
    c = 16 * scale
    layers: list[nn.Module] = [nn.Conv2d(3, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 10))
    return _step(model, torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,)))


def gpt(scale: int = 1) -> Step:
    model = GPT(512, 96 * scale, 4, 64)
    return _step(
        model, torch.randint(0, 512, (4 * scale, 64)), torch.randint(0, 512, (4 * scale, 64))
    )


def lstm(scale: int = 1) -> Step:
    model = Recurrent(32, 64 * scale, 10)
    return _step(model, torch.randn(16 * scale, 40, 32), torch.randint(0, 10, (16 * scale,)))


def resnet(scale: int = 1) -> Step:
    width = 16 * scale
    blocks = [Residual(width) for _ in range(8)]
    pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    model = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *blocks, *pool)
    return _step(model, torch.randn(8, 3, 24, 24), torch.randint(0, 10, (8,)))


def small(scale: int = 1) -> Step:
    """A step that is over in a fraction of a millisecond."""
    width = 32 * scale
    model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 10))
    return _step(model, torch.randn(32 * scale, 16), torch.randint(0, 10, (32 * scale,)))


def many(scale: int = 1) -> Step:
    """640 small parameters."""
    width = 8 * scale
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(320)])
    return _step(model, torch.randn(4, width), torch.randint(0, width, (4,)))


MODELS: dict[str, Callable[[int], Step]] = {
    "MLP": mlp,
    "CNN": cnn,
    "ResNet, 16 batch norms": resnet,
    "GPT": gpt,
    "LSTM": lstm,
    "two layers": small,
    "320 layers, 640 tensors": many,
}
