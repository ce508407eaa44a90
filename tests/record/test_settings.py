"""An origin inside a library goes back to what the user gave it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.harness import ForkServer
from whynan.model import Site
from whynan.source.settings import setting_behind

LIBRARY = """
import torch

class Norm(torch.nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.variance_epsilon = eps

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(variance + self.variance_epsilon) * self.weight

class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = Norm(config["size"], eps=config["norm_eps"])
        self.out = torch.nn.Linear(config["size"], 3)

    def forward(self, x):
        return self.out(self.norm(x))

def soften(scores, temperature=1.0):
    return (scores / temperature).exp()

def focus(x, gamma=2.0):
    return x ** gamma

def blur(x, scale, noise):
    std = scale * noise
    return x * torch.normal(0.0, std, x.shape)

def edges(x, eps=1e-6):
    return torch.sqrt(x.diff(dim=-1).square() + eps)
"""

HEAD = """
import sys
sys.path.insert(0, sys.path[0] + "/site-packages")
import torch
import yaml
import lib
torch.manual_seed(0)
x = torch.randn(6, 4)
x[2] = 0
net = torch.nn.Linear(4, 4)
"""

PROGRAMS = {
    "a keyword": ("temperature", """
lib.soften(net(x).abs() + 1, temperature=1e-5).mean().backward()  # HERE
"""),
    "an entry that has another name inside": ("norm_eps", """
settings = {
    "size": 4,
    "norm_eps": 0.0,  # HERE
}
lib.Model(settings)(x).square().mean().backward()
"""),
    "a name for it": ("temperature", """
COLD = 1e-5  # HERE
lib.soften(net(x).abs() + 1, temperature=COLD).mean().backward()
"""),
    "an infinite one": ("noise", """
lib.blur(net(x), scale=0.1, noise=float("inf")).square().mean().backward()  # HERE
torch.optim.SGD(net.parameters(), lr=0.1).step()
"""),
    "one that a schedule takes down": ("temperature", """
class Cooling:
    def __init__(self):
        self.temperature = 1.0

    def step(self):
        self.temperature = max(self.temperature - 0.5, 0.0)  # HERE

optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
cooling = Cooling()
for epoch in range(4):
    loss = torch.log1p(lib.soften(-net(x).abs() - 1, temperature=cooling.temperature)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    cooling.step()
"""),
    "an exponent": ("gamma", """
lib.focus(net(x).relu() * 0, gamma=0.5).mean().backward()  # HERE
torch.optim.SGD(net.parameters(), lr=0.1).step()
"""),
    "of a slope": ("eps", """
eps = 0.0  # HERE
lib.edges(net(x) * 0 + 1, eps=eps).mean().backward()
torch.optim.SGD(net.parameters(), lr=0.1).step()
"""),
}  # fmt: skip


def run(
    programs: ForkServer, folder: Path, text: str, **files: str
) -> tuple[str, dict[str, object]]:
    library = folder / "site-packages" / "lib.py"
    library.parent.mkdir()
    library.write_text(LIBRARY)
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(content)
    script = folder / "train.py"
    script.write_text(dedent(HEAD + text).lstrip())
    result = programs.run(script, cwd=folder, mode="auto")
    assert result.report is not None
    return " ".join(result.stderr.split()), result.report["anomalies"][0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_users_own_setting_is_named_first(
    programs: ForkServer, tmp_path: Path, name: str
) -> None:
    setting, text = PROGRAMS[name]
    words, found = run(programs, tmp_path, text)
    lines = (tmp_path / "train.py").read_text().splitlines()
    line = next(i for i, t in enumerate(lines, 1) if t.endswith("# HERE"))
    title = found["fixes"][0]["title"]  # type: ignore[index]
    assert f"give `{setting}` a" in title
    assert f"train.py:{line}" in title
    assert "help: give" in words


def test_a_line_of_a_settings_file_is_named(programs: ForkServer, tmp_path: Path) -> None:
    text = 'lib.Model(yaml.safe_load(open("model.yaml")))(x).square().mean().backward()'
    words, _ = run(programs, tmp_path, text, model="size: 4\nnorm_eps: 0.0\n")
    assert "model.yaml:2 sets `norm_eps: 0.0`" in words


def test_a_name_that_is_made_of_itself_is_followed_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "def f(scores):\n    scores = scores - 1\n    scores = scores / 3\n    return scores / eps\n"
    )
    site = Site(
        file=str(script),
        line=4,
        column=11,
        end_line=4,
        end_column=23,
        source="return scores / eps",
        function="f",
    )
    assert setting_behind(site, ["other"], 0.0, [str(script)], []) is None


def test_one_of_two_settings_is_not_guessed(programs: ForkServer, tmp_path: Path) -> None:
    text = "lib.soften(net(x), temperature=1e-5)\nlib.soften(net(x).abs() + 1, temperature=1e-5).mean().backward()"
    words, _ = run(programs, tmp_path, text)
    assert "give `temperature`" not in words
