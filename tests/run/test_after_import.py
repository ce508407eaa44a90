"""However torch comes to be imported, whynan is there; and the program sees no trace of how."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from tests.run.starting import run, write

PLANTED = "loss = torch.log(weight - 1).sum()"
TRAINING = f"""
import torch
weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(3):
    {PLANTED}
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
FINDER = """
import sys
from importlib.abc import Loader
from importlib.machinery import PathFinder
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, path)
        return change(spec) if name == "torch" else None
"""
WAYS = {
    "a plain import": "",
    "asked for before": """
        import importlib.util
        for _ in range(3):
            assert importlib.util.find_spec("torch") is not None
    """,
    "asked for by pkgutil": """
        import pkgutil
        assert pkgutil.find_loader("torch") is not None
        assert "torch" in {m.name for m in pkgutil.iter_modules()}
    """,
    "a submodule first": "import torch.nn.functional as F",
    "imported by name": "import importlib; importlib.import_module('torch')",
    "imported from C": """
        import ctypes
        api = ctypes.pythonapi.PyImport_ImportModule
        api.restype = ctypes.py_object
        api(b"torch")
    """,
    "imported in a thread": """
        import threading
        thread = threading.Thread(target=__import__, args=("torch",))
        thread.start(); thread.join()
    """,
    "imported by many threads at once": """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(__import__, ["torch"] * 4))
    """,
    "an import that fails at first": """
        import sys
        class Fails:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name == "torch._utils":
                    sys.meta_path.remove(Fails)
                    raise ImportError("the disk was away")
        sys.meta_path.insert(0, Fails)
        try:
            import torch
        except ImportError as error:
            assert str(error) == "the disk was away" and "torch" not in sys.modules
        else:
            raise AssertionError
    """,
    "loaded a second time in place": """
        import importlib, torch
        try:
            importlib.reload(torch)
        except RuntimeError:  # torch cannot do it to the end
            pass
    """,
    "removed from the modules and put back": """
        import sys, torch
        own = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "torch"}
        for name in own:
            del sys.modules[name]
        sys.modules.update(own)
    """,
    "a finder in front of all": FINDER + "change = lambda spec: spec\nsys.meta_path.insert(0, Finder)",
    "finders of the program's own only": """
        import sys
        from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
        sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder]
    """,
    "a loader of the program's own": FINDER + """
class Own(Loader):
    def __init__(self, loader):
        self.loader = loader
    def exec_module(self, module):
        exec(self.loader.get_code("torch"), module.__dict__)
def change(spec):
    spec.loader = Own(spec.loader)
    return spec
sys.meta_path.insert(0, Finder)
import torch
import colorsys  # any import that follows
""",
    "loaded by hand": """
        import importlib.util, sys
        spec = importlib.util.find_spec("torch")
        torch = importlib.util.module_from_spec(spec)
        sys.modules["torch"] = torch
        spec.loader.exec_module(torch)
    """,
    "loaded at first use": """
        import importlib.util, sys
        spec = importlib.util.find_spec("torch")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        torch = importlib.util.module_from_spec(spec)
        sys.modules["torch"] = torch
        spec.loader.exec_module(torch)
        assert "torch._C" not in sys.modules
    """,
}  # fmt: skip


def assert_found(script: Path, *options: str, path: str = "") -> None:
    report = script.parent / "report.json"
    done = run("--json", report.name, *options, script.name, cwd=script.parent, PYTHONPATH=path)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    first = json.loads(report.read_text())["anomalies"][0]
    assert first["location"]["source"] == PLANTED


@pytest.mark.parametrize("way", WAYS)
def test_the_planted_line_is_found(way: str, tmp_path: Path) -> None:
    assert_found(write(tmp_path, textwrap.dedent(WAYS[way]) + TRAINING))


@pytest.mark.parametrize("way", ["asked for before", "imported in a thread"])
def test_the_planted_line_is_found_by_the_tracer(way: str, tmp_path: Path) -> None:
    assert_found(write(tmp_path, textwrap.dedent(WAYS[way]) + TRAINING), "--mode", "trace")


def test_torch_may_be_there_before_whynan_is(tmp_path: Path) -> None:
    write(tmp_path, "import torch", "site/sitecustomize.py")
    assert_found(write(tmp_path, TRAINING), path=str(tmp_path / "site"))


def test_a_package_may_import_torch_before_its_module_runs(tmp_path: Path) -> None:
    write(
        tmp_path,
        "import importlib.util; importlib.util.find_spec('torch')" + TRAINING,
        "pack/__init__.py",
    )
    write(tmp_path, "print('never reached')", "pack/train.py")
    done = run("-m", "pack.train", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert PLANTED in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("mode", ["auto", "trace"])
def test_a_library_that_imports_torch_itself_is_known_when_it_is_there(
    mode: str, tmp_path: Path
) -> None:
    """What is saved with it is looked at, although it was half there when the watch began."""
    script = write(
        tmp_path,
        """
        from safetensors.torch import save_file
        import torch
        weight = torch.zeros(3).log()
        save_file({"weight": weight}, "model.safetensors")
        """,
    )
    done = run("--mode", mode, script.name, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "weight = torch.zeros(3).log()" in done.stderr


def test_late_steps_are_seen_where_torch_came_in_a_thread(tmp_path: Path) -> None:
    """By then the recorder rests, and the step is repeated for it."""
    late = (
        TRAINING.replace("range(3)", "range(20)")
        .replace("0.1", "0.001")
        .replace("weight - 1)", "weight * (step < 13))")
    )
    script = write(tmp_path, textwrap.dedent(WAYS["imported in a thread"]) + late)
    done = run("--json", "report.json", script.name, cwd=tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    assert done.returncode == 3, done.stderr
    assert (report["anomalies"][0]["step"], report["reproduced"]) == (13, "body")


def test_a_thread_that_imports_torch_and_trains_is_followed(tmp_path: Path) -> None:
    body = textwrap.indent(TRAINING, "    ")
    script = write(
        tmp_path,
        f"import threading, time\ndef work():{body}\nthread = threading.Thread(target=work)\n"
        "thread.start()\nwhile thread.is_alive():\n    time.sleep(0.01)\n",
    )
    assert_found(script)


def test_a_healthy_program_that_loads_torch_twice_ends_by_itself(tmp_path: Path) -> None:
    healthy = TRAINING.replace("weight - 1", "weight + 1")
    script = write(tmp_path, textwrap.dedent(WAYS["loaded a second time in place"]) + healthy)
    done = run(script.name, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


LOOK = """
import importlib.resources, importlib.util, inspect, pickle, pkgutil, sys, traceback, warnings

def look(module):
    spec, loader = module.__spec__, module.__loader__
    print(spec, type(spec), type(loader), vars(loader), loader.exec_module.__func__)
    print(spec.loader is loader, loader == importlib.util.find_spec("torch").loader)
    print(pickle.dumps(loader) == pickle.dumps(importlib.util.find_spec("torch").loader))

thrown_away = importlib.util.find_spec("torch")
print(thrown_away, vars(thrown_away.loader), thrown_away == importlib.util.find_spec("torch"))
print(sys.meta_path, sys.path_hooks, len(pkgutil.find_loader("torch").get_source("torch")))
import torch
look(torch)
print(inspect.getsourcefile(torch), len(inspect.getsource(torch)), inspect.getmodule(torch.nn.Linear))
print(importlib.resources.files("torch"), importlib.resources.is_resource("torch", "version.py"))
print(torch.__file__, torch.__path__, torch.__cached__, torch.__package__, torch.__name__)
import who_asks
print(who_asks.frames)
for name in ("raises", "is_not_there", "syntax"):
    try:
        __import__(name)
    except Exception:
        traceback.print_exc(file=sys.stdout)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import old
print([(w.filename, w.lineno) for w in caught])
"""


def test_specs_loaders_stacks_and_tracebacks_are_as_without_whynan(tmp_path: Path) -> None:
    script = write(tmp_path, LOOK)
    frames = "import inspect\nnames = [f.function for f in inspect.stack()]\n"
    write(tmp_path, frames + "frames = names[: names.index('<module>', 1) + 1]", "who_asks.py")
    write(tmp_path, "import json\njson.loads('{')", "raises.py")
    write(tmp_path, "import nothing_of_that_name", "is_not_there.py")
    write(tmp_path, "def f(:", "syntax.py")
    write(tmp_path, "import warnings\nwarnings.warn('old', stacklevel=2)", "old.py")
    plain = run(script.name, cwd=tmp_path, watched=False)
    watched = run(script.name, cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert watched.returncode == 0, watched.stderr
    assert _without_addresses(watched.stdout) == _without_addresses(plain.stdout)


def _without_addresses(text: str) -> str:
    return re.sub("0x[0-9a-f]+", "0x", text)
