"""For every pattern: spellings that must be found, and near misses that must stay silent.

Each is the body of a function of `x, y, z, mask, model, target`, after the imports in PRELUDE.
"""

from __future__ import annotations

import textwrap

PRELUDE = """\
import math
import numpy as np
import torch
import torch as t
import torch.nn as nn
import torch.nn.functional as F
from torch import log, softmax
"""


def program(body: str) -> str:
    """A file with the body as a function."""
    inside = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return f"{PRELUDE}\n\ndef f(x, y, z, mask, model, target):\n{inside}\n"


FOUND: dict[str, list[str]] = {
    "log-softmax": [
        "return torch.log(torch.softmax(x, dim=-1))",
        "return x.softmax(-1).log()",
        "return t.log(F.softmax(x, 1))",
        "return log(softmax(x, -1))",
        "p = x.softmax(-1)\nreturn p.log()",
        "p = F.softmax(x, dim=1)\nreturn torch.log(p[torch.arange(3), y])",
        "return torch.log(nn.Softmax(dim=-1)(x) + 1e-8)",
        "return torch.log(input=torch.softmax(input=x, dim=1))",
        "return torch.log2(x.softmax(-1))",
        "p = torch.softmax(x, 1)\nreturn -(p * p.log10()).sum(1)",
    ],
    "log-sigmoid": [
        "return torch.log(torch.sigmoid(x))",
        "return x.sigmoid().log().mean()",
        "s = F.sigmoid(x)\ns = s.view(-1)\nreturn torch.log(s + 1e-8)",
    ],
    "log1m-sigmoid": [
        "return torch.log(1 - torch.sigmoid(x))",
        "return torch.log1p(-x.sigmoid())",
        "return (1.0 - x.sigmoid()).log()",
        "p = torch.sigmoid(x)\nreturn torch.log(1 - p + 1e-8)",
    ],
    "log1p-exp": [
        "return torch.log(1 + torch.exp(x))",
        "return x.exp().log1p()",
        "return np.log1p(np.exp(x))",
        "e = (-x).exp()\nreturn (e + 1).log()",
    ],
    "logsumexp-hand": [
        "return torch.log(torch.sum(torch.exp(x), dim=1))",
        "return x.exp().sum(-1, keepdim=True).log()",
        "return np.log(np.sum(np.exp(x), axis=1))",
        "return torch.log(torch.mean(torch.exp(x), dim=0))",
        "return torch.einsum('ij,j->i', x.exp(), y).log()",
        "return torch.log(torch.exp(x) @ torch.exp(y))",
    ],
    "softmax-hand": [
        "return torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)",
        "e = x.exp()\nreturn e / e.sum(dim=1, keepdim=True)",
        "e = np.exp(x)\nreturn e / e.sum()",
        "e = x.exp()\ntotal = e.sum(0)\nreturn e / total",
    ],
    "tanh-logdet": [
        "return torch.log(1 - torch.tanh(x) ** 2)",
        "a = x.tanh()\nreturn torch.log(1 - a.pow(2) + 1e-6)",
        "return torch.log1p(-torch.tanh(x).square())",
    ],
    "log-det": [
        "return torch.log(torch.det(x))",
        "return torch.linalg.det(x).log()",
        "return np.log(np.linalg.det(x))",
        "return torch.log(torch.abs(torch.det(x)))",
    ],
    "p-log-p": [
        "return -(x * x.log()).sum()",
        "p = x / x.sum().clamp(min=1)\nreturn (p * torch.log(p)).sum()",
        "return (np.log(x) * x).sum()",
    ],
    "logit-hand": [
        "return torch.log(x / (1 - x))",
        "return (x / (1.0 - x)).log()",
    ],
    "gumbel-log-log": [
        "return -torch.log(-torch.log(torch.rand_like(x)))",
        "u = torch.rand(3)\nreturn -(-u.log()).log()",
        "u = torch.empty(3).uniform_()\nreturn -torch.log(-torch.log(u))",
    ],
    "prod-probs": [
        "return torch.log(torch.prod(x, dim=1))",
        "return torch.prod(x, 1).log()",
    ],
    "pairwise-expand": [
        "return torch.sqrt((x ** 2).sum(1, keepdim=True) + (y ** 2).sum(1) - 2 * x @ y.T)",
        "d = x.pow(2).sum(1)[:, None] + y.pow(2).sum(1)[None] - 2 * torch.mm(x, y.t())\nreturn d.sqrt()",
        "return (x.square().sum(1, True) - 2.0 * (x @ y.T) + y.square().sum(1)) ** 0.5",
    ],
    "var-two-moment": [
        "return (x ** 2).mean(0) - x.mean(0) ** 2",
        "m = x.mean()\nreturn torch.mean(x * x) - m * m",
        "return np.mean(x ** 2) - np.mean(x) ** 2",
    ],
    "masked-mean": [
        "return (x * mask).sum() / mask.sum()",
        "m = y > 0\nreturn (x * m).sum() / m.sum()",
        "m = (y != 0).float()\ntotal = m.sum(1)\nreturn (x * m).sum(1) / total",
        "return x[mask].sum() / mask.sum()",
        "return torch.sum(x * mask, dim=1) / torch.sum(mask, dim=1)",
    ],
    "div-norm": [
        "return x / x.norm(dim=-1, keepdim=True)",
        "n = torch.linalg.vector_norm(x, dim=1, keepdim=True)\nreturn x / n",
        "return x / np.linalg.norm(x)",
        "x /= x.norm()\nreturn x",
        "return torch.div(x, torch.norm(x))",
    ],
    "div-std": [
        "return (x - x.mean()) / x.std()",
        "m, s = x.mean(0), x.std(0)\nreturn (x - m) / s",
        "return (x - np.mean(x)) / np.std(x)",
    ],
    "minmax-norm": [
        "return (x - x.min()) / (x.max() - x.min())",
        "lo, hi = x.min(), x.max()\nreturn (x - lo) / (hi - lo)",
        "return (x - np.min(x)) / (np.max(x) - np.min(x))",
        "lo = x.min(1).values\nhi = x.max(1).values\nreturn (x - lo) / (hi - lo)",
    ],
    "div-union": [
        "i = (x * y).sum()\nreturn 2 * i / (x.sum() + y.sum())",
        "i = torch.sum(x & y)\nu = torch.sum(x) + torch.sum(y) - i\nreturn i / u",
    ],
    "div-sum": [
        "w = torch.relu(x)\nreturn w / w.sum(-1, keepdim=True)",
        "w = x * mask\nreturn w / w.sum()",
        "w = (x > 0).float()\nreturn w / torch.sum(w)",
    ],
    "cosine-hand": [
        "return (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))",
        "return torch.dot(x, y) / (torch.norm(x) * torch.norm(y))",
        "return x @ y / (np.linalg.norm(x) * np.linalg.norm(y))",
    ],
    "where-unsafe": [
        "return torch.where(x > 0, torch.log(x), 0.0)",
        "return torch.where(x > 0, y / x, torch.zeros_like(x))",
        "return torch.where(x <= 0, 0.0, x.sqrt())",
        "ok = x > 0\nreturn torch.where(ok, 2 * x.log() + 1, y)",
        "r = y / x\nreturn torch.where(y > 0, y * torch.log(r), torch.zeros_like(y))",
        "return torch.where(x > 1, torch.acosh(x), 0.0)",
        "return torch.where(x < 1, torch.atanh(x), 3.0)",
        "return torch.where(x < 1, x.erfinv(), torch.zeros_like(x))",
        "return torch.where(x > 0, torch.lgamma(x), 0.0)",
    ],
    "sqrt-sum-sq": [
        "return torch.sqrt((x ** 2).sum(-1))",
        "return (x - y).pow(2).sum(-1).sqrt()",
        "d = x - y\ns = torch.sum(d * d, dim=1)\nreturn torch.sqrt(s)",
        "return torch.sum(torch.square(x), dim=1, keepdim=True) ** 0.5",
    ],
    "sqrt-edge": [
        "return torch.sqrt(x.clamp(min=0))",
        "return F.relu(x).sqrt()",
        "return torch.sqrt(1 - x ** 2)",
        "return torch.sqrt(torch.mean(x ** 2)) + 1e-8",
    ],
    "frac-pow": [
        "return torch.relu(x) ** 0.5",
        "return F.relu(x).pow(0.2)",
        "return torch.sum(x, dim=1) ** -0.5",
    ],
    "acos-unclamped": [
        "return torch.acos((x * y).sum(-1))",
        "return torch.matmul(x, y).arccos()",
        "c = F.cosine_similarity(x, y)\nreturn torch.acos(c)",
        "return np.arccos(np.dot(x, y))",
        "return torch.asin(torch.einsum('ij,ij->i', x, y))",
        "return torch.acosh(-(x * y).sum(-1))",
        "return torch.atanh(x @ y)",
        "return torch.acos((x * y).sum(-1).abs())",
    ],
    "acos-clamp-one": [
        "return torch.acos(x.clamp(-1, 1))",
        "return torch.acos(torch.clamp(x, min=-1.0, max=1.0))",
        "c = x.clamp(-1 + 1e-8, 1 - 1e-8)\nreturn c.acos()",
        "return torch.atanh(x.clamp(-1, 1))",
        "return torch.erfinv(x.clamp(-1.0, 1.0))",
        "return torch.acosh(x.clamp(min=1.0))",
        "return x.clamp(min=1).arccosh()",
        "return torch.logit(x.clamp(0, 1))",
    ],
    "mask-by-multiply": [
        "return (torch.log(x) * mask).sum()",
        "return torch.nan_to_num(torch.log(x))",
        "return torch.sqrt(x - y).nan_to_num()",
    ],
    "sigmoid-hand": [
        "return 1 / (1 + torch.exp(-x))",
        "e = torch.exp(-x)\nreturn 1.0 / (1.0 + e)",
        "return x / (1 + torch.exp(-x))",
        "return (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))",
    ],
    "eps-below-dtype": [
        "x = x.half()\nreturn torch.log(x + 1e-8)",
        "x = x.to(torch.float16)\nreturn y / (x.sqrt() + 1e-10)",
        "h = x.half()\nreturn torch.clamp(h, min=1e-8).log()",
    ],
    "exp-logvar": [
        "return torch.exp(y_logvar)",
        "mu, logvar = model(x).chunk(2, -1)\nreturn mu + torch.exp(0.5 * logvar) * z",
        "log_scale = model(x)\nreturn (-log_scale).exp()",
    ],
    "ppo-ratio": [
        "return torch.exp(new_logp - old_logp)",
        "ratio = (log_probs - old_log_probs).exp()\nreturn ratio",
        "d = new_log_prob - old_log_prob\nreturn torch.exp(d)",
    ],
    "neginf-softmax": [
        "return torch.where(mask, x, -math.inf).softmax(dim=-1)",
        "return F.softmax(torch.where(mask, x, torch.tensor(float('-inf'))), dim=-1)",
        "x[~mask] = -float('inf')\nreturn x.softmax(-1)",
        "x[mask == 0] = float('-inf')\nreturn F.softmax(x, dim=-1)",
        "return torch.softmax(x.masked_fill(mask, float('-inf')), dim=-1)",
        "x = x.masked_fill(mask == 0, -np.inf)\nreturn F.softmax(x, -1)",
        "x.masked_fill_(mask, -math.inf)\nreturn x.softmax(-1)",
        "if mask is not None:\n    x = x.masked_fill(mask, float('-inf'))\nreturn x.softmax(-1)",
    ],
    "ce-softmax": [
        "return F.cross_entropy(F.softmax(x, dim=-1), target)",
        "p = model(x).softmax(-1)\nreturn nn.CrossEntropyLoss()(p, target)",
        "net = nn.Sequential(nn.Linear(3, 4), nn.Softmax(dim=-1))\nreturn F.cross_entropy(net(x), target)",
        "return F.binary_cross_entropy_with_logits(torch.sigmoid(x), target)",
        "crit = nn.BCEWithLogitsLoss()\nhead = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid(), nn.Flatten())\nreturn crit(head(x), target)",
    ],
    "bce-sigmoid": [
        "return F.binary_cross_entropy(torch.sigmoid(x), target)",
        "p = x.sigmoid()\nreturn nn.BCELoss()(p, target)",
        "net = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())\nreturn F.binary_cross_entropy(net(x), target)",
    ],
    "nll-softmax": [
        "return F.nll_loss(F.softmax(x, dim=1), target)",
        "return F.nll_loss(torch.log(F.softmax(x, dim=1)), target)",
        "return nn.NLLLoss()(x.softmax(1), target)",
    ],
    "kl-misuse": [
        "return F.kl_div(F.softmax(x, -1), y, reduction='batchmean')",
        "return F.kl_div(F.log_softmax(x, -1), F.log_softmax(y, -1), reduction='batchmean')",
        "return F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1))",
        "return nn.KLDivLoss(reduction='batchmean')(x.softmax(-1), y)",
    ],
    "inf-times-mask": [
        "return x + (1 - mask) * float('-inf')",
        "return x + (1.0 - mask) * -np.inf",
        "bias = mask * float('-inf')\nreturn x + bias",
    ],
    "half-mask-literal": [
        "x = x.half()\nreturn x.masked_fill(mask, -1e9)",
        "x = x.to(torch.float16)\nreturn x + mask * -1e9",
    ],
    "adam-half": [
        "net = nn.Linear(2, 2).half()\nreturn torch.optim.Adam(net.parameters())",
        "net = nn.Linear(2, 2)\nnet.half()\nreturn torch.optim.AdamW(net.parameters(), lr=1e-3)",
        "net = nn.Linear(2, 2).to(torch.float16).cuda()\nreturn torch.optim.Adam(net.parameters(), eps=1e-8)",
    ],
    "inv-matmul": [
        "return torch.inverse(x) @ y",
        "return torch.linalg.inv(x).matmul(y)",
        "return np.linalg.inv(x) @ y",
        "return np.linalg.inv(x).dot(y)",
    ],
    "k3-kl": [
        "return torch.exp(x) - x - 1",
        "return (torch.exp(x) - 1) - x",
        "return torch.exp(y - x) - (y - x) - 1",
    ],
    "expm1": [
        "return torch.exp(x) - 1",
        "return 1 - (-x).exp()",
        "return np.exp(x) - 1.0",
        "return math.exp(x) - 1",
    ],
    "log1p": [
        "return torch.log(1 + x)",
        "return (1 - x).log()",
        "return np.log(x + 1)",
    ],
    "nan-compare": [
        "return x == float('nan')",
        "return x.sum() != np.nan",
        "return torch.nan == x",
    ],
    "empty-read": [
        "a = torch.empty(3)\na += x\nreturn a",
        "return torch.empty(2, 2) @ x",
        "a = np.empty((3, 3))\nreturn a + x",
        "a = torch.Tensor(5)\nreturn a.sum()",
    ],
    "clip-nonfinite": [
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)",
    ],
    "kl-hand": [
        "return (x * torch.log(x / y)).sum()",
        "return torch.sum(x * (x / y).log())",
        "p, q = x.softmax(-1), y.softmax(-1)\nreturn (p * (p / q).log2()).sum()",
        "return np.sum(x * np.log(x / y))",
        "return (x * (torch.log(x) - torch.log(y))).sum(-1)",
    ],
    "log-relu": [
        "return torch.log(F.relu(x))",
        "return x.relu().log()",
        "return torch.log2(x.clamp(min=0))",
        "return np.log(np.maximum(x, 0))",
        "h = nn.ReLU()(x)\nreturn h.log()",
    ],
    "log-cosh": [
        "return torch.log(torch.cosh(x - y)).mean()",
        "return (x - y).cosh().log().sum()",
        "return np.mean(np.log(np.cosh(x - y)))",
        "d = x - y\nc = torch.cosh(d)\nreturn torch.log(c)",
        "return log(torch.cosh(x))",
    ],
    "div-self": [
        "return x / (x - x)",
        "return torch.div(x, y - y)",
        "return (x - x.mean()) / (x - x)",
        "d = y - y\nreturn x / d",
        "return np.divide(x, x - x)",
    ],
    "rmse-root": [
        "return torch.sqrt(F.mse_loss(x, target))",
        "return ((x - y) ** 2).mean().sqrt()",
        "return nn.MSELoss()(x, target).sqrt()",
        "return torch.sqrt(torch.mean((x - y).pow(2)))",
        "return F.mse_loss(x, y) ** 0.5",
    ],
    "empty-mean": [
        "return x[mask].mean()",
        "return torch.mean(x[mask])",
        "return x.masked_select(mask).mean()",
        "loss = F.cross_entropy(x, y, reduction='none')\nreturn loss[y != 0].mean()",
        "return x[~mask].mean()",
    ],
}

SILENT: dict[str, list[str]] = {
    "log-softmax": [
        "return F.log_softmax(x, dim=-1)",
        "return torch.log(x)",
        "if y:\n    p = x.softmax(-1)\nelse:\n    p = x\nreturn p.log()",
        "p = x.softmax(-1)\np = model(p)\nreturn p.log()",
        "p = x.softmax(-1).clamp(min=1e-6)\nreturn p.log()",
        "model.log(x.softmax(-1))",
    ],
    "log-sigmoid": ["return F.logsigmoid(x)", "return torch.log(torch.sigmoid(x) + 1)"],
    "log1m-sigmoid": ["return F.logsigmoid(-x)", "return torch.log(2 - torch.sigmoid(x))"],
    "log1p-exp": [
        "return torch.log1p(torch.exp(-x.abs()))",
        "return torch.log(1 + torch.exp(-(x ** 2)))",
        "return F.softplus(x)",
        "m = x.max()\nreturn torch.log1p(torch.exp(x - m))",
    ],
    "logsumexp-hand": [
        "return torch.logsumexp(x, dim=1)",
        "m = x.amax(1, keepdim=True)\nreturn (x - m).exp().sum(1).log() + m",
        "return torch.log(torch.exp(x.clamp(max=20)).sum(1))",
    ],
    "softmax-hand": [
        "e = torch.exp(x - x.max())\nreturn e / e.sum()",
        "return torch.softmax(x, -1)",
        "k = torch.exp(-x ** 2 / 2)\nreturn k / k.sum()",
        "return torch.exp(x) / torch.exp(y).sum()",
    ],
    "tanh-logdet": ["return torch.log(1 + torch.tanh(x) ** 2)", "return 1 - torch.tanh(x) ** 2"],
    "log-det": ["return torch.logdet(x)", "return torch.linalg.slogdet(x)[1]"],
    "p-log-p": [
        "p = x[x > 0]\nreturn -(p * p.log()).sum()",
        "p = x[x > 0]\nreturn -np.sum(p * np.log(p))",
        "return (x * torch.log(x + 1e-9)).sum()",
        "return x * y.log()",
        "p = x.clamp(min=1e-9)\nreturn p * p.log()",
        "return 2.0 * torch.log(torch.tensor(2.0))",
    ],
    "logit-hand": [
        "return torch.logit(x)",
        "p = x.clamp(1e-6, 1 - 1e-6)\nreturn torch.log(p / (1 - p))",
        "return torch.log(x / (1 - y))",
    ],
    "gumbel-log-log": [
        "u = torch.rand(3).clamp(1e-6, 1 - 1e-6)\nreturn -torch.log(-torch.log(u))",
        "return -torch.log(-torch.log(torch.rand(3) + 1e-10))",
    ],
    "prod-probs": [
        "return math.log(math.prod(x.shape))",
        "return np.log(np.prod(x.shape))",
        "return torch.prod(x, 1)",
    ],
    "pairwise-expand": [
        "d = (x ** 2).sum(1, keepdim=True) + (y ** 2).sum(1) - 2 * x @ y.T\nreturn d.clamp(min=1e-12).sqrt()",
        "return torch.cdist(x, y)",
        "return (x ** 2).sum(1, keepdim=True) + (y ** 2).sum(1) - 2 * x @ y.T",
    ],
    "var-two-moment": ["return x.var(0, correction=0)", "return (x ** 2).mean() - y.mean() ** 2"],
    "masked-mean": [
        "return (x * mask).sum() / mask.sum().clamp(min=1)",
        "return (x * mask).sum() / (mask.sum() + 1e-8)",
        "n = mask.sum()\nif n == 0:\n    return x.sum() * 0\nreturn (x * mask).sum() / n",
        "return (x * mask).sum() / mask.sum() if mask.any() else 0.0",
        "return (x * mask).sum() / max(mask.sum(), 1)",
        "return (x * y).sum() / x.numel()",
        "n = mask.sum()\nassert n > 0\nreturn (x * mask).sum() / n",
    ],
    "div-norm": [
        "v = F.normalize(x, dim=-1)\nreturn v / v.norm(dim=-1, keepdim=True)",
        "return F.normalize(x, dim=-1)",
        "return x / (x.norm(dim=-1, keepdim=True) + 1e-6)",
        "return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6)",
        "n = x.norm()\nif n > 0:\n    x = x / n\nreturn x",
        "return x / y.norm()",
        "n = np.linalg.norm(x)\nreturn x / n if n > 0 else x",
    ],
    "div-std": [
        "return (x - x.mean()) / (x.std() + 1e-5)",
        "s = x.std()\ns = s.clamp(min=1e-5)\nreturn (x - x.mean()) / s",
        "return (x - y.mean()) / y.std()",
    ],
    "minmax-norm": [
        "return (x - x.min()) / (x.max() - x.min() + 1e-8)",
        "r = x.max() - x.min()\nif r == 0:\n    return x\nreturn (x - x.min()) / r",
        "return (x - y.min()) / (y.max() - y.min())",
    ],
    "div-union": [
        "i = (x * y).sum()\nreturn (2 * i + 1) / (x.sum() + y.sum() + 1)",
        "i = (x * y).sum()\nu = x.sum() + y.sum()\nreturn torch.where(u > 0, i / u, 1.0)",
    ],
    "div-sum": [
        "w = torch.exp(x)\nreturn w / w.sum()",
        "return x / x.sum()",
        "w = torch.relu(x)\nreturn w / (w.sum() + 1e-8)",
        "w = x * mask\nreturn w / w.sum().clamp(min=1e-6)",
    ],
    "cosine-hand": [
        "return F.cosine_similarity(x, y)",
        "return (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1) + 1e-8)",
        "return (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1)).clamp(min=1e-8)",
    ],
    "where-unsafe": [
        "return torch.where(x > 0, torch.log(torch.where(x > 0, x, 1.0)), 0.0)",
        "return torch.where(x > 0, torch.log(x.clamp(min=1e-6)), 0.0)",
        "with torch.no_grad():\n    return torch.where(x > 0, torch.log(x), 0.0)",
        "return np.where(x > 0, np.log(x), 0.0)",
        "return torch.where(mask, x * 2, y)",
        "a = (x > 0).sum()\nb = (y > 0).sum()\nreturn torch.where(b > 0, a / b, 0.0)",
        "return torch.where(x > 0, torch.log1p(x), x)",
        "return torch.where(y > 0, x % y, 0)",
    ],
    "sqrt-sum-sq": [
        "return torch.linalg.vector_norm(x, dim=-1)",
        "return torch.sqrt((x ** 2).sum(-1) + 1e-12)",
        "return np.sqrt((x ** 2).sum(-1))",
        "with torch.no_grad():\n    return torch.sqrt((x ** 2).sum(-1))",
        "return torch.sqrt((x ** 2).mean(-1))",
    ],
    "sqrt-edge": [
        "return torch.sqrt(x.clamp(min=1e-6))",
        "return torch.sqrt(1 - alphas_cumprod ** 2)",
        "return torch.sqrt(x)",
        "return math.sqrt(1 - 0.5 ** 2)",
        "c = x.clamp(-1 + 1e-6, 1 - 1e-6)\nreturn torch.sqrt(1 - c ** 2)",
    ],
    "frac-pow": [
        "return x.shape[-1] ** -0.5",
        "return torch.relu(x) ** 2",
        "return torch.relu(x) ** 2.0",
        "return (torch.relu(x) + 1e-6) ** 0.5",
        "return torch.arange(3) ** 0.5",
        "return x ** 0.5",
    ],
    "acos-unclamped": [
        "return torch.acos((x * y).sum(-1).clamp(-0.999, 0.999))",
        "return torch.acos(x)",
        "return math.acos(0.5)",
    ],
    "acos-clamp-one": [
        "return torch.acos(x.clamp(-1 + 1e-6, 1 - 1e-6))",
        "with torch.no_grad():\n    return torch.acos(x.clamp(-1, 1))",
        "return np.arccos(np.clip(x, -1, 1))",
        "return torch.atanh(x.clamp(-0.999, 0.999))",
        "return torch.acosh(x.clamp(min=1 + 1e-6))",
        "return torch.logit(x.clamp(0, 1), eps=1e-6)",
        "return torch.logit(x.clamp(1e-9, 1 - 1e-6))",
    ],
    "mask-by-multiply": [
        "return torch.log(x + 1e-8) * mask",
        "return F.log_softmax(x, -1) * mask",
        "return np.nan_to_num(np.log(x))",
        "return torch.nan_to_num(x)",
        "with torch.no_grad():\n    return torch.nan_to_num(torch.log(x))",
    ],
    "sigmoid-hand": [
        "return torch.sigmoid(x)",
        "return 1 / (1 + np.exp(-x))",
        "return 1 / (1 + torch.exp(-x.clamp(-20, 20)))",
        "return 1 / (2 + torch.exp(-x))",
    ],
    "eps-below-dtype": [
        "return torch.log(x + 1e-8)",
        "h = x.half()\nreturn torch.log(h.float() + 1e-8)",
        "h = x.half()\nreturn torch.log(h + 1e-4)",
        "h = x.bfloat16()\nreturn torch.log(h + 1e-8)",
        "if x.dtype == torch.float16:\n    return x\nreturn torch.log(torch.relu(x) + 1e-8)",
    ],
    "exp-logvar": [
        "logvar = model(x).clamp(-30, 20)\nreturn torch.exp(logvar)",
        "log_std = torch.tanh(model(x))\nreturn log_std.exp()",
        "logvar = model(x)\nif logvar.max() > 20:\n    raise ValueError\nreturn logvar.exp()",
        "log_std = nn.Parameter(torch.zeros(3))\nreturn log_std.exp()",
        "return torch.exp(x)",
    ],
    "ppo-ratio": [
        "return torch.exp((new_logp - old_logp).clamp(-20, 20))",
        "with torch.no_grad():\n    return torch.exp(new_logp - old_logp)",
        "return torch.exp(x - y)",
    ],
    "neginf-softmax": [
        "return torch.softmax(x.masked_fill(causal_mask, float('-inf')), dim=-1)",
        "m = torch.triu(torch.ones(3, 3), 1).bool()\nreturn torch.softmax(x.masked_fill(m, float('-inf')), dim=-1)",
        "return torch.softmax(x.masked_fill(mask, torch.finfo(x.dtype).min), dim=-1)",
        "a = torch.softmax(x.masked_fill(mask, float('-inf')), dim=-1)\nreturn a.nan_to_num()",
        "return torch.softmax(x.masked_fill(mask, -1e4), dim=-1)",
    ],
    "ce-softmax": [
        "return F.cross_entropy(x, target)",
        "return F.cross_entropy(F.log_softmax(x, -1), target)",
        "if y:\n    x = x.softmax(-1)\nelse:\n    x = F.cross_entropy(x, target)\nreturn x",
        "net = nn.Sequential(nn.Softmax(-1), nn.Linear(3, 4))\nreturn F.cross_entropy(net(x), target)",
    ],
    "bce-sigmoid": [
        "return F.binary_cross_entropy_with_logits(x, target)",
        "return F.binary_cross_entropy(x, target)",
        "return F.binary_cross_entropy(x.softmax(-1), target)",
    ],
    "nll-softmax": [
        "return F.nll_loss(F.log_softmax(x, dim=1), target)",
        "return F.nll_loss(x, target)",
    ],
    "kl-misuse": [
        "return F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction='batchmean')",
        "return F.kl_div(x.log_softmax(-1), y.log_softmax(-1), reduction='sum', log_target=True)",
        "return F.kl_div(x, y, None, None, 'sum')",
    ],
    "inf-times-mask": [
        "return torch.ones(3) * float('inf')",
        "return x.masked_fill(mask == 0, float('-inf'))",
        "return x + (1 - mask) * -1e9",
        "best = float('inf') * 1",
    ],
    "half-mask-literal": [
        "return x.masked_fill(mask, -1e9)",
        "h = x.half()\nreturn h.masked_fill(mask, -1e4)",
        "h = x.half()\nreturn h.float().masked_fill(mask, -1e9)",
        "h = x.half()\nreturn h.masked_fill(mask, float('-inf'))",
    ],
    "adam-half": [
        "net = nn.Linear(2, 2)\nreturn torch.optim.Adam(net.parameters())",
        "net = nn.Linear(2, 2).half()\nreturn torch.optim.Adam(net.parameters(), eps=1e-4)",
        "net = nn.Linear(2, 2).half()\nreturn torch.optim.SGD(net.parameters(), lr=0.1)",
        "net = nn.Linear(2, 2).half().float()\nreturn torch.optim.Adam(net.parameters())",
    ],
    "inv-matmul": [
        "return torch.linalg.solve(x, y)",
        "inv = torch.inverse(x)\nreturn inv @ y + inv @ z",
        "return torch.inverse(camera_pose) @ y",
        "return torch.inverse(x)",
    ],
    "k3-kl": ["return torch.expm1(x) - x", "return torch.exp(x) - y - 1"],
    "expm1": [
        "return torch.expm1(x)",
        "return torch.exp(x) - 2",
        "return torch.round(torch.exp(x) - 1)",
        "e = torch.exp(x)\nreturn e - 1",
    ],
    "log1p": [
        "return torch.log1p(x)",
        "return torch.log(1 + count)",
        "return torch.log(x + 1e-8)",
        "return math.log(1 + len(x))",
    ],
    "nan-compare": ["return x != x", "return torch.isnan(x)", "return x == float('inf')"],
    "empty-read": [
        "a = torch.empty(3)\na.fill_(0)\nreturn a + x",
        "a = torch.empty(3)\na[:] = x\nreturn a + x",
        "a = torch.empty(3).normal_()\nreturn a + x",
        "a = torch.empty(3)\nnn.init.zeros_(a)\nreturn a + x",
        "a = torch.empty(3)\ntorch.add(x, y, out=a)\nreturn a + x",
        "a = torch.empty(0)\nreturn torch.cat([a, x])",
        "a = torch.empty(3)\nreturn torch.baddbmm(a, x, y, beta=0, alpha=2)",
        "a = torch.empty(3)\nmodel(a)\nreturn a + x",
        "a = np.empty(3)\nfor i in range(3):\n    a[i] = i\nreturn a.sum()",
        "return nn.Parameter(torch.empty(3))",
        "a = torch.empty(0)\nreturn a + x",
    ],
    "clip-nonfinite": [
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)",
        "n = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\nif not torch.isfinite(n):\n    raise ValueError",
    ],
    "kl-hand": [
        "p, q = x.clamp(min=1e-6), y.clamp(min=1e-6)\nreturn (p * torch.log(p / q)).sum()",
        "return (x * torch.log(z / y)).sum()",
        "return F.kl_div(y.log(), x, reduction='sum')",
    ],
    "log-relu": [
        "return torch.log(F.relu(x) + 1e-6)",
        "return torch.log(x.clamp(min=1e-8))",
        "return torch.log1p(F.relu(x))",
    ],
    "log-cosh": [
        "return torch.log(torch.cosh(torch.tanh(x)))",
        "return torch.cosh(x)",
        "return math.log(math.cosh(0.5))",
    ],
    "div-self": [
        "return x / (x - y)",
        "return x - x / 2",
        "return x / (x.max() - x.min() + 1e-6)",
    ],
    "rmse-root": [
        "return torch.sqrt(F.mse_loss(x, target) + 1e-8)",
        "with torch.no_grad():\n    return torch.sqrt(F.mse_loss(x, target))",
        "return np.sqrt(np.mean((x - y) ** 2))",
    ],
    "empty-mean": [
        "if mask.any():\n    return x[mask].mean()\nreturn x.sum() * 0",
        "return x[0].mean()",
        "return torch.nan_to_num(x[mask].mean())",
        "return x[:, 1:].mean()",
    ],
}
