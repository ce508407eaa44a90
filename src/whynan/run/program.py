"""Runs a script as `python script.py` would: same `__main__`, argv, path, exit code, traceback."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import shlex
import signal
import sys
import threading
import types
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from zipimport import zipimporter

from whynan import voice
from whynan.errors import UsageError
from whynan.seam.paths import OPERATORS
from whynan.secrets import without_secrets

LAUNCHERS = ("torch", "accelerate", "deepspeed")
_own_root = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run: a script's path, or with `is_module` a dotted module name."""

    target: str
    args: tuple[str, ...] = ()
    is_module: bool = False

    @property
    def typed(self) -> str:
        """As it is typed after `whynan run`, without what looks like a secret."""
        given = [*["-m"] * self.is_module, self.target, *self.args]
        return shlex.join(without_secrets(given))


def own_part(program: Program) -> Program:
    """The user's own program: where a launcher is run, what that is given to launch."""
    module = program.is_module and program.target.split(".")[0] in LAUNCHERS
    beside = os.path.dirname(os.path.abspath(program.target)) == os.path.dirname(sys.executable)
    if not module and (program.is_module or not beside):
        return program
    scripts = [i for i, a in enumerate(program.args) if a.endswith(".py") and os.path.isfile(a)]
    if not scripts:
        return Program(target="", is_module=True)
    return Program(target=program.args[scripts[0]], args=program.args[scripts[0] + 1 :])


def program_root(program: Program) -> str:
    """The folder whose files are the user's own: the script's, or the working directory."""
    program = own_part(program)
    if program.is_module:
        return os.getcwd()
    script = os.path.dirname(os.path.abspath(program.target))
    here = os.getcwd()
    return here if os.path.commonpath([script, here]) == here else script


@contextmanager
def in_folder(folder: str) -> Iterator[None]:
    """Paths are meant and told as seen from where the program was started; it may have gone elsewhere."""
    try:
        here = os.getcwd()
    except OSError:  # that one is gone
        here = None
    try:
        with suppress(OSError):
            os.chdir(folder)
        yield
    finally:
        if here is not None:
            with suppress(OSError):
                os.chdir(here)


def prepare(program: Program) -> Callable[[], None]:
    """Set up `__main__`, `sys.argv` and `sys.path`; the result runs the program."""
    return _prepare_module(program) if program.is_module else _prepare_script(program)


def _prepare_script(program: Program) -> Callable[[], None]:
    path = Path(program.target)
    if path.is_dir():
        path = path / "__main__.py"
    if not path.is_file():
        raise UsageError(f"can't open {program.target!r}: no such file")
    main = types.ModuleType("__main__")
    main.__file__ = os.path.abspath(path)
    main.__builtins__ = builtins  # type: ignore[attr-defined]  # as the interpreter sets it
    main.__cached__ = None  # type: ignore[attr-defined]  # as the interpreter sets it
    main.__annotations__ = {}
    sys.path[0] = os.path.dirname(os.path.realpath(path))  # a link's is its target's
    sys.argv = [program.target, *program.args]
    sys.modules["__main__"] = main
    loader = _loader_of(path)
    main.__loader__ = loader or SourceFileLoader("__main__", main.__file__)
    if isinstance(loader, zipimporter):
        sys.path[0] = str(path)
        main.__file__ = os.path.join(path, "__main__.py")

    def run() -> None:
        if loader is not None:
            code = loader.get_code("__main__")
        else:
            with io.open_code(str(path)) as stream:
                source = stream.read()
            code = compile(source, os.path.abspath(path), "exec", dont_inherit=True)
        exec(code, main.__dict__)  # type: ignore[arg-type]  # a loader that was asked has code

    return run


def _loader_of(path: Path) -> SourcelessFileLoader | zipimporter | None:
    """Of a program that is no text: compiled before, or packed with what it needs."""
    if path.suffix == ".pyc":
        return SourcelessFileLoader("__main__", os.path.abspath(path))
    if not zipfile.is_zipfile(path):
        return None
    packed = zipimporter(str(path))
    if packed.find_spec("__main__") is None:
        raise UsageError(f"can't run {str(path)!r}: there is no __main__ in it")
    return packed


def _prepare_module(program: Program) -> Callable[[], None]:
    sys.path[0] = os.getcwd()
    name = program.target
    try:
        spec = importlib.util.find_spec(name)
        is_package = spec is not None and spec.submodule_search_locations is not None
        if is_package:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except ImportError as error:
        raise UsageError(f"can't find module {program.target!r}: {error}") from error
    if spec is None or spec.loader is None:
        why = "it is a package without __main__" if is_package else "there is no such module"
        raise UsageError(f"can't run module {program.target!r}: {why}")
    main = types.ModuleType("__main__")
    main.__file__ = spec.origin
    main.__package__ = spec.parent
    main.__spec__ = spec
    main.__loader__ = spec.loader
    main.__builtins__ = builtins  # type: ignore[attr-defined]  # as the interpreter sets it
    main.__cached__ = spec.cached  # type: ignore[attr-defined]  # as the interpreter sets it
    main.__annotations__ = {}
    sys.argv = [spec.origin or name, *program.args]
    sys.modules["__main__"] = main

    def run() -> None:
        code = spec.loader.get_code(name)  # type: ignore[union-attr]  # a source loader has it
        exec(code, main.__dict__)

    return run


def wait_for_threads() -> None:
    """As the interpreter does at its end, before anything is taken down. The threads of a pool end
    only when they are told to, by what `concurrent.futures` has registered for that moment."""
    registered: list[Callable[[], None]] = getattr(threading, "_threading_atexits", [])
    while registered:
        registered.pop()()
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()


def print_traceback(error: BaseException) -> None:
    """What plain Python would print: without whynan's own frames, and nothing where it cannot. Raises
    SystemExit where the program's own hook does."""
    _strip(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as failure:  # of the hook, told as the interpreter does
        _strip(failure)
        told = (("Error in sys.excepthook:\n", failure), ("\nOriginal exception was:\n", error))
        for text, about in told:
            voice.write(text)
            sys.__excepthook__(type(about), about, about.__traceback__)


def _strip(error: BaseException) -> None:
    seen: set[int] = set()
    linked: list[BaseException | None] = [error]
    while linked:
        current = linked.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            current.__traceback__ = without_own_frames(current.__traceback__)
            linked += [current.__cause__, current.__context__]


def without_own_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Also without torch's frame that whynan calls an operation through."""
    entries = []
    after_own = False
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        own = file.startswith(_own_root)
        if not own and not (after_own and file.endswith(OPERATORS)):
            entries.append(trace)
        after_own = own
        trace = trace.tb_next
    result = None
    for entry in reversed(entries):
        result = types.TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


def die_of_interrupt() -> None:
    """End as a program does that Ctrl-C ended: by the signal itself."""
    voice.let_go_of_broken_streams()  # with what they still hold, where they are not broken
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
