"""What the guard is not sure of: a value that is read, an exception, a step that was skipped."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.harness import ForkServer
from whynan.seam.versions import HERE

TRAIN = """
import math, sys, torch
from torch import nn
torch.manual_seed(2)
rows = torch.rand(320, 3) + 0.1
rows[253, 2] = 0.0
net = nn.Linear(2, 1)
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(32):
    batch = rows[10 * step:10 * step + 10]
    wanted = torch.log(batch[:, 2])  # HERE
    loss = (net(batch[:, :2])[:, 0] - wanted).square().mean()
    CHECK
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

TRAINED = """
import numpy, torch
from torch import nn
torch.manual_seed(2)
net = nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.05)
for step in range(30):
    x = torch.randn(8, 3)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SHARE = "share = torch.zeros(2) / torch.zeros(2)  # HERE\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return path


@pytest.mark.parametrize(
    ("check", "sink"),
    [
        ("if not math.isfinite(loss.item()): sys.exit(1)", "exception"),
        ("if torch.isinf(loss): sys.exit(1)", "exception"),
        (
            "if not torch.isfinite(loss):\n        print('giving up')\n        sys.exit('no use')",
            "exception",
        ),
        ("if not loss.isfinite(): raise KeyError('bad loss')", "exception"),
    ],
)
def test_an_infinity_that_ends_the_program_is_followed_up(
    programs: ForkServer, tmp_path: Path, check: str, sink: str
) -> None:
    result = programs.run(written(tmp_path, TRAIN.replace("CHECK", check)), mode="auto")
    assert result.report is not None
    found = result.report["anomalies"][0]
    assert found["location"]["source"].endswith("# HERE")
    assert (found["step"], found["sink"], result.report["reproduced"]) == (25, sink, "body")
    assert result.code == 3


def test_an_infinity_that_the_recorder_found_harmless_stays_so(
    programs: ForkServer, tmp_path: Path
) -> None:
    best = "best = torch.full((), float('inf'))\nfor step in range(30):"
    text = TRAINED.replace("for step in range(30):", best) + "    print(step, best.item())"
    script = written(tmp_path, text)
    plain = programs.run(script, traced=False)
    watched = programs.run(script, mode="auto")
    assert watched.report is not None
    assert watched.report["anomalies"] == []
    assert (watched.code, watched.stdout) == (0, plain.stdout)
    assert watched.stderr == plain.stderr


def test_torchs_warning_names_the_programs_line(programs: ForkServer, tmp_path: Path) -> None:
    text = """
    import torch
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    for _ in range(3):
        loss = weight.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(float(loss))
    """
    script = written(tmp_path, text)
    plain = programs.run(script, traced=False)
    watched = programs.run(script, mode="auto")
    assert ("UserWarning: Converting a tensor" in plain.stderr) == (HERE >= (2, 8))
    assert watched.stderr.replace(f"{tmp_path}/", "") == plain.stderr


@pytest.mark.parametrize(
    "use",
    [
        "torch.save({'share': share}, 'kept.pt')",
        "import safetensors.torch as st; st.save_file({'share': share}, 'kept.safetensors')",
        "net.weight.data.mul_(share[0]); torch.save(net.state_dict(), 'kept.pt')",
        "numpy.save('kept.npy', numpy.asarray(share))",
        "with torch.no_grad(): print(net(torch.ones(2, 3) * share[0]).argmax().tolist())",
    ],
)
def test_a_nan_that_leaves_after_training_is_followed_up(
    programs: ForkServer, tmp_path: Path, use: str
) -> None:
    result = programs.run(written(tmp_path, TRAINED + SHARE + use), mode="auto")
    assert result.report is not None
    assert result.report["anomalies"], result.stderr
    assert result.report["anomalies"][0]["location"]["source"].endswith("# HERE")


LAST_WORDS = {
    "an infinity that an operation made": TRAINED
    + """
spread = (x[0] - x[0]).sum()
score = torch.ones(()) / spread  # HERE
print("score", score.item())
""",
    "a tensor that takes the place of another in each turn": """
import torch
theta = torch.ones(4, requires_grad=True)
for step in range(20):
    z = torch.full((6, 4), 0.0 if step == 15 else 1.0) @ theta
    (g,) = torch.autograd.grad(z.abs().sum().sqrt(), theta)  # HERE
    theta = (theta - 0.01 * g).detach().requires_grad_()
print(theta)
""",
}


@pytest.mark.parametrize("program", LAST_WORDS.values(), ids=LAST_WORDS)
def test_the_last_word_is_told(programs: ForkServer, tmp_path: Path, program: str) -> None:
    result = programs.run(written(tmp_path, program), mode="auto")
    assert result.report is not None
    assert result.report["anomalies"], result.stderr
    assert result.report["anomalies"][0]["location"]["source"].endswith("# HERE")


@pytest.mark.parametrize(
    "use",
    [
        "torch.save({'mask': torch.full((2,), float('-inf'))}, 'kept.pt')",
        "bounds = torch.full((2,), float('inf')); print(bounds, bounds.tolist(), bounds.numpy())",
    ],
)
def test_infinities_among_others_are_mostly_meant(
    programs: ForkServer, tmp_path: Path, use: str
) -> None:
    script = written(tmp_path, TRAINED + SHARE + use)
    plain = programs.run(script, traced=False)
    watched = programs.run(script, mode="auto")
    assert (watched.code, watched.stdout, watched.stderr) == (0, plain.stdout, plain.stderr)


MEASURED = """
with torch.no_grad():
    for batch in BATCHES:
        value = net(batch).mean().item()
        if numpy.isnan(value):
            open('runs', 'a').write('x')
"""


def test_only_a_models_last_output_is_followed_up(programs: ForkServer, tmp_path: Path) -> None:
    good, bad = "torch.ones(2, 3)", "torch.ones(2, 3) * share[0]"
    passing = MEASURED.replace("BATCHES", f"({bad}, {good})")
    watched = programs.run(written(tmp_path, TRAINED + SHARE + passing), mode="auto")
    assert watched.code == 0
    assert (tmp_path / "runs").read_text() == "x"  # nor was it run again to see
    last = MEASURED.replace("BATCHES", f"({good}, {bad})")
    result = programs.run(written(tmp_path, TRAINED + SHARE + last), mode="auto")
    assert result.report is not None
    assert result.report["anomalies"][0]["location"]["source"].endswith("# HERE")


LEFT_OUT = """
import torch
from torch import nn
torch.manual_seed(0)
rows = torch.randn(400, 4)
rows[[3, 205]] *= 1e25
net = nn.Linear(4, 1)
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
for batch in rows.split(8):
    loss = (net(batch) - batch.clamp(-2, 2).sum(1, keepdim=True)).square().mean()  # HERE
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    if not torch.isfinite(norm):
        DEAL
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("mode", ["trace", "auto"])
@pytest.mark.parametrize(
    "deal",
    [
        "[setattr(p, 'grad', None) for p in net.parameters()]; continue",
        "[p.grad.zero_() for p in net.parameters()]; continue",
        "net.zero_grad(); continue",
    ],
)
def test_gradients_that_the_program_drops_do_no_harm(
    programs: ForkServer, tmp_path: Path, deal: str, mode: str
) -> None:
    script = written(tmp_path, LEFT_OUT.replace("DEAL", deal))
    assert programs.run(script, traced=False).code == 0
    watched = programs.run(script, mode=mode)
    assert watched.report is not None
    assert watched.report["anomalies"] == []


@pytest.mark.parametrize("mode", ["trace", "auto"])
def test_gradients_that_are_only_noticed_do_harm(
    programs: ForkServer, tmp_path: Path, mode: str
) -> None:
    watched = programs.run(written(tmp_path, LEFT_OUT.replace("DEAL", "print('bad')")), mode=mode)
    assert watched.report is not None
    found = watched.report["anomalies"][0]
    assert found["location"]["source"].endswith("# HERE")
    assert found["step"] == 0


POISONED_STATISTICS = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
xs = torch.randn(120, 6)
xs[77] = {row}
for i in range(12):
    x = xs[10 * i : 10 * i + 10]
    loss = (net(x) - x[:, :1].clamp(-3, 3)).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_running_variance_that_overflows_is_seen_at_its_step(
    tmp_path: Path, programs: ForkServer
) -> None:
    script = tmp_path / "script.py"
    script.write_text(POISONED_STATISTICS.format(row=3e20))
    report = programs.run(script, mode="auto").report
    assert report is not None
    (found,) = report["anomalies"]
    assert (found["location"]["line"], found["step"]) == (11, 7)
    assert (found["phase"], found["mechanism"], found["sink"]) == (
        "forward",
        "overflow",
        "parameter",
    )
    script.write_text(POISONED_STATISTICS.format(row=3e15))
    result = programs.run(script, mode="auto")
    assert result.report is not None
    assert (result.code, result.report["anomalies"]) == (0, [])


ENCODE = """
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(4, 4)

    def forward(self, x, mask):
        seen = mask[:, None, :] & mask[:, :, None]
        scores = x @ self.key(x).transpose(1, 2)
        return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ x  # HERE

class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, x, mask):
        with torch.no_grad():
            return self.encoder(x, mask).nan_to_num()

with open("runs.txt", "a") as log:
    log.write("run\\n")
torch.manual_seed(0)
encoder, frozen = Encoder().eval(), Frozen().eval()
for i in range(30):
    x, mask = torch.randn(3, 5, 4), torch.arange(5) < torch.tensor([[5], [2], [4]])
    if i < 20:
        mask[:] = True
    MADE
    print(i, total)
"""
DEALT_WITH = [
    """with torch.no_grad():
        h = encoder(x, mask)
    total = torch.where(mask[..., None], h, 0.0).sum().item()""",
    """with torch.inference_mode():
        h = encoder(x, mask)
        total = h[mask].sum().item()""",
    "total = frozen(x, mask).sum().item()",
]


@pytest.mark.parametrize("made", DEALT_WITH, ids=["where", "indexed", "inside another module"])
def test_a_bad_output_that_is_dealt_with_next_needs_no_second_run(
    programs: ForkServer, tmp_path: Path, made: str
) -> None:
    script = written(tmp_path, ENCODE.replace("MADE", made))
    plain = programs.run(script, cwd=tmp_path, traced=False)
    watched = programs.run(script, cwd=tmp_path, mode="auto")
    assert plain.code == 0, plain.stderr
    assert (watched.code, watched.stdout, watched.stderr) == (0, plain.stdout, "")
    assert (tmp_path / "runs.txt").read_text() == "run\nrun\n"  # once each


def test_a_bad_output_that_only_its_largest_class_is_taken_of_is_harm(
    programs: ForkServer, tmp_path: Path
) -> None:
    made = """with torch.no_grad():
        h = encoder(x, mask)
    total = h.argmax(-1).sum().item()"""
    text = ENCODE.replace("MADE", made)
    report = programs.run(written(tmp_path, text), cwd=tmp_path, mode="auto").report
    assert report is not None
    first = report["anomalies"][0]
    assert (first["sink"], first["mechanism"]) == ("output", "all_masked_softmax")
    assert text.splitlines()[first["location"]["line"] - 1].endswith("# HERE")
    assert report["reproduced"] in ("live", "call")


HALVED = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
net.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))
optimizer = torch.optim.Adam(net.parameters())
for step in range(20):
    optimizer.zero_grad()
    net(torch.randn(16, 3) * SIZE).square().mean().backward()
    optimizer.step()
net.eval()
net.half()  # HERE
with torch.no_grad():
    print(net((torch.randn(4, 3) * SIZE).half()).argmax(1).tolist())
"""


@pytest.mark.parametrize("size", ["1.0", "900.0"])
def test_statistics_that_do_not_fit_into_half_precision_are_noticed(
    programs: ForkServer, tmp_path: Path, size: str
) -> None:
    text = HALVED.replace("SIZE", size)
    result = programs.run(written(tmp_path, text), mode="auto")
    assert result.report is not None
    if size == "1.0":
        assert (result.code, result.stderr) == (0, "")
        return
    first = result.report["anomalies"][0]
    assert first["location"]["source"].endswith("# HERE")
    assert (first["phase"], first["mechanism"]) == ("init", "overflow")
