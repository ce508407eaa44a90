"""Inference, evaluation, generation and exceptions are explained where they are, without a second run."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.harness import ForkServer

SETUP = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
"""
SERVICE = """
class Service(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.drop, self.seen = nn.Linear(8, 4), nn.Dropout(0.5), 0
    def forward(self, x):
        self.seen += 1
        return self.drop(self.layer(x)) * (x / x.norm(dim=-1, keepdim=True)).sum()  # HERE
service = Service()
requests = [torch.rand(2, 8) for _ in range(30)]
requests[20] = torch.zeros(2, 8)
"""

# The way it is answered, and the program.
PROGRAMS = {
    "a model that counts its calls and draws": ("call", SERVICE + """
        with torch.inference_mode():
            for x in requests[:21]: y = service(x)
        print(y)
        """),
    "a model in a thread": ("call", SERVICE + """
        import queue, threading
        inbox, outbox = queue.Queue(), queue.Queue()
        def work():
            with torch.no_grad():
                while (x := inbox.get()) is not None: outbox.put(service(x))
        thread = threading.Thread(target=work); thread.start()
        for x in requests[:21]:
            inbox.put(x); y = outbox.get()
        inbox.put(None); thread.join()
        print(y)
        """),
    "a service that refuses a bad answer": ("call", SERVICE + """
        def answer(x):
            with torch.no_grad(): y = service(x)
            if torch.isnan(y).any(): raise ValueError("the model returned NaN")
            return y
        for x in requests: answer(x)
        """),
    "a cache that grows": ("call", """
        class Cache: keys = None
        class Decoder(nn.Module):
            def __init__(self):
                super().__init__(); self.e, self.o = nn.Embedding(10, 8), nn.Linear(8, 10)
            def forward(self, ids, past=None):
                h = self.e(ids[:, -1:])
                past.keys = h if past.keys is None else torch.cat([past.keys, h], 1)
                left = torch.tensor(20.0 - past.keys.shape[1])
                return self.o(past.keys.mean(1)) * left.sqrt()  # HERE
        decoder, cache, ids = Decoder(), Cache(), torch.zeros(1, 1, dtype=torch.long)
        with torch.no_grad():
            for _ in range(30):
                p = decoder(ids, past=cache).softmax(-1)
                ids = torch.cat([ids, torch.multinomial(p, 1)], 1)
        """),
    "sampling after the model": ("body", """
        @torch.no_grad()
        def generate(x, n):
            for i in range(n):
                logits = net[0](x)
                p = torch.softmax(logits / max(0.0, 1 - i / 20), -1)  # HERE
                x = x + torch.multinomial(p, 1)
            return x
        generate(torch.rand(1, 8), 30)
        """),
    "a mean of an evaluation": ("body", """
        rows = torch.rand(40, 4, 8); rows[33] = -1
        def evaluate():
            total = 0.0
            with torch.no_grad():
                for x in rows:
                    total += (net(x).squeeze(1) * torch.log(x.sum(1))).mean().item()  # HERE
            return total / len(rows)
        print("score", evaluate())
        """),
    "a test in a training loop": ("body", """
        opt = torch.optim.SGD(net.parameters(), 0.01)
        for i in range(30):
            x = torch.rand(4, 8) * (i != 23)
            loss = (net(x) * (x / x.amax(1, keepdim=True)).sum()).mean()  # HERE
            assert torch.isfinite(loss), "the loss is not finite"
            opt.zero_grad(); loss.backward(); opt.step()
        """),
    "an update by hand": ("body", """
        w = torch.randn(4, requires_grad=True)
        for i in range(30):
            x = torch.rand(6, 4) * (i != 22)
            loss = torch.sqrt((x @ w).abs()).mean()  # HERE
            loss.backward()
            with torch.no_grad(): w -= 0.001 * w.grad
            w.grad = None
        print(w)
        """),
    "gradients that are accumulated": ("body", """
        opt = torch.optim.SGD(net.parameters(), 0.01)
        for i in range(100):
            x = torch.rand(4, 8)
            t = torch.zeros(4) if i == 62 else torch.rand(4) + 0.1
            loss = (net(x).squeeze(1) / t).pow(2).mean()  # HERE
            loss.backward()
            if i % 4 == 3: opt.step(); opt.zero_grad()
        """),
    "a hidden state": ("body", """
        cell, head = nn.GRUCell(4, 8), nn.Linear(8, 1)
        opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], 0.01)
        h = torch.zeros(2, 8)
        for t in range(40):
            h = cell(torch.randn(2, 4), h.detach())
            loss = (head(h) / torch.tensor(33.0 - t)).pow(2).mean()  # HERE
            opt.zero_grad(); loss.backward(); opt.step()
        """),
    "the second of two updates": ("body", """
        judge = nn.Linear(1, 1)
        one = torch.optim.SGD(net.parameters(), 0.01); two = torch.optim.SGD(judge.parameters(), 0.01)
        for i in range(30):
            h = net(torch.rand(3, 8))
            loss = h.pow(2).mean(); one.zero_grad(); loss.backward(); one.step()
            score = judge(h.detach()) * (i != 17)
            loss = score.pow(2).sum().sqrt(); two.zero_grad(); loss.backward(); two.step()  # HERE
        """),
    "training in a thread": ("body", """
        import threading
        def train():
            opt = torch.optim.SGD(net.parameters(), 0.01)
            for i in range(30):
                x = torch.rand(4, 8)
                if i == 17: x[1] = -1.0
                loss = (net(x) - torch.sqrt(x).sum(1, keepdim=True)).pow(2).mean()  # HERE
                opt.zero_grad(); loss.backward(); opt.step()
        thread = threading.Thread(target=train); thread.start(); thread.join()
        """),
    "a figure after training": ("body", """
        opt = torch.optim.SGD(net.parameters(), 0.01)
        for i in range(30):
            loss = net(torch.rand(4, 8)).pow(2).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        with torch.inference_mode():
            x = torch.rand(6, 8)
            found, wanted = net(x).squeeze(1), torch.ones(6)
            found, wanted = found - found.mean(), wanted - wanted.mean()
            r = (found * wanted).sum() / (found.norm() * wanted.norm())  # HERE
        print(f"correlation {r:.3f}")
        """),
    "a figure after training, in a function": ("body", """
        def main():
            opt = torch.optim.SGD(net.parameters(), 0.01)
            for i in range(30):
                loss = net(torch.rand(4, 8)).pow(2).mean()
                opt.zero_grad(); loss.backward(); opt.step()
            x = torch.rand(6, 8)
            spread = x[:1].std(0)  # HERE
            with torch.no_grad():
                y = net(x / spread)
            print("score", y.mean().item())
        main()
        """),
    "a state that went bad in the turn before": ("body", """
        cell = nn.Linear(4, 4)
        opt = torch.optim.SGD(cell.parameters(), 1e-6)
        h = torch.ones(2, 4)
        for t in range(60):
            h = cell(h.detach()) * 100 + h.detach() * 90  # HERE
            loss = h.abs().mean().log1p()
            opt.zero_grad(); loss.backward(); opt.step()
        """),
    "a rate that becomes infinite": ("live", """
        opt = torch.optim.SGD(net.parameters(), 0.01)
        for i in range(20):
            loss = net(torch.rand(4, 8)).pow(2).mean()
            opt.param_groups[0]["lr"] = 0.01 if i != 12 else float("inf")
            opt.zero_grad(); loss.backward(); opt.step()  # HERE
        """),
}  # fmt: skip


def write(folder: Path, program: str) -> tuple[Path, int]:
    script = folder / "script.py"
    setup = SETUP + (SERVICE if program.startswith(SERVICE) else "")
    script.write_text(setup + textwrap.dedent(program.removeprefix(SERVICE)))
    lines = script.read_text().splitlines()
    return script, 1 + next(i for i, line in enumerate(lines) if "# HERE" in line)


@pytest.mark.parametrize("what", PROGRAMS)
def test_is_answered_in_place(what: str, programs: ForkServer, tmp_path: Path) -> None:
    how, program = PROGRAMS[what]
    script, here = write(tmp_path, program)
    result = programs.run(script, mode="auto", rerun=False, live_operations=0)
    assert result.code == 3, result.stderr
    assert result.report is not None
    assert result.report["reproduced"] == how, result.stderr
    assert result.report["anomalies"][0]["location"]["line"] == here


SERVES = """
print("begins")
lengths = []
service.register_forward_hook(lambda *call: lengths.append(len(call)))
for x in requests:
    with torch.inference_mode(): y = service(x)
    print(service.seen, len(lengths), y.sum().item(), torch.rand(1).item())
"""


def test_a_service_goes_on_as_without_whynan(programs: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SETUP + SERVICE + SERVES)
    plain = programs.run(script, traced=False)
    watched = programs.run(script, mode="auto", on_anomaly="warn", rerun=False, live_operations=0)
    assert watched.stdout == plain.stdout
    assert watched.report is not None
    assert watched.report["reproduced"] == "call"
    assert "output of Service is NaN" in watched.stderr


# The second call of a turn would see other weights than the first one did.
CHANGES = """
class Learns(nn.Module):
    def __init__(self):
        super().__init__(); self.register_buffer("mean", torch.ones(8))
    def forward(self, x):
        y = torch.log(self.mean.sum() - 4) * x.mean()
        self.mean = self.mean * 0.5 if x.sum() == 0 else self.mean
        return y + torch.log(self.mean.sum() - 5) * (x / x).mean()
learns = Learns()
with torch.no_grad():
    for i in range(20): y = learns(torch.rand(8) * (i != 15) + 0.0)
    for i in range(5): y = learns(torch.rand(8))
print(y)
"""


def test_another_call_is_not_taken_for_the_same(programs: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SETUP + CHANGES)
    result = programs.run(script, mode="auto", rerun=False, live_operations=0)
    assert result.report is not None
    assert result.report["reproduced"] != "call", result.stderr


# A bad answer among good ones is no harm: the model takes what is there once.
TAKES = {
    "a counter and a generator": "ids = itertools.count(); words = (w for w in 'abcdefghijklmnop')\ntake = lambda: (next(ids), next(words))",
    "a queue that is empty afterwards": "waiting = queue.Queue(); [waiting.put(i) for i in range(12)]\ntake = waiting.get",
    "a file": "open('lines.txt', 'w').write('a\\nb\\nc\\nd\\ne\\nf\\ng\\nh\\ni\\nj\\nk\\nl\\nm\\n')\nlines = open('lines.txt')\ntake = lambda: lines.readline().strip()",
}  # fmt: skip


@pytest.mark.parametrize("taken", TAKES.values(), ids=TAKES)
@pytest.mark.parametrize("policy", ["stop", "warn"])
def test_what_a_model_takes_is_taken_once(
    taken: str, policy: str, programs: ForkServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import itertools, queue, torch\n{taken}"
        + textwrap.dedent("""
        class Net(torch.nn.Module):
            def forward(self, x):
                self.taken = take()
                return 1 / x
        net = Net()
        for i in range(12):
            with torch.no_grad():
                y = net(torch.tensor([0.0 if i in (7, 9) else 2.0]))
            print(net.taken, y.tolist())
        """)
    )
    plain = programs.run(script, traced=False)
    watched = programs.run(script, mode="auto", on_anomaly=policy, rerun=False, live_operations=0)
    assert watched.stdout == plain.stdout
    assert policy == "warn" or watched.code == 0


# What is small is recorded from its beginning to its end.
WHOLE = """
beta = torch.linspace(1e-4, 0.9, 40)
bar = torch.cumprod(1 - beta, 0)
bar[0] = 1.0
x = torch.randn(2, 8)
with torch.no_grad():
    for t in reversed(range(40)):
        noise = net[0](x)
        x = (x - beta[t] / (1 - bar[t]).sqrt() * noise) / (1 - beta[t]).sqrt()  # HERE
        x = x / x.abs().max()
torch.save(x, "x.pt")
"""


def test_a_small_program_that_does_not_train_is_recorded_whole(
    programs: ForkServer, tmp_path: Path
) -> None:
    script, here = write(tmp_path, WHOLE)
    result = programs.run(script, mode="auto", rerun=False)
    assert result.code == 3, result.stderr
    assert result.report is not None
    assert result.report["reproduced"] == "live"
    assert result.report["anomalies"][0]["location"]["line"] == here


# A batch that is bad by itself, right after a bad loss that did no harm.
UNRELATED = """
cell = nn.Linear(4, 4)
opt = torch.optim.SGD(cell.parameters(), 1e-3)
batches = [torch.rand(2, 4) for _ in range(40)]
batches[23] = batches[23] * float("nan")  # HERE
h = torch.ones(2, 4)
for i, x in enumerate(batches):
    h = torch.tanh(cell(x) + h.detach())
    loss = h.pow(2).mean() - torch.log((x.sum() * (i != 22)).detach())
    opt.zero_grad(); loss.backward(); opt.step()
"""


def test_a_bad_loss_before_is_not_blamed_for_another(programs: ForkServer, tmp_path: Path) -> None:
    script, here = write(tmp_path, UNRELATED)
    result = programs.run(script, mode="auto", rerun=False, live_operations=0)
    assert result.code == 3, result.stderr
    assert result.report is not None
    assert result.report["anomalies"][0]["location"]["line"] == here, result.stderr
