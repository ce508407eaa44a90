"""What a pickle describes, without ever executing it.

A pickle is a program for a stack machine; unpickling calls whatever functions it names. This
machine builds a description instead: a function is a `Global`, calling it gives a `Call` that
remembers function and arguments. So every checkpoint can be looked into, also those that
`torch.load(weights_only=True)` refuses.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import IO, Any

from whynan.checking.spans import Unreadable

MOST_STEPS = 10_000_000  # a checkpoint of 10,000 tensors takes half a million
PLAIN_KEYS = (str, int, float, bool, bytes, type(None))


@dataclass(frozen=True, slots=True)
class Global:
    """A function or class by name."""

    module: str
    name: str


@dataclass(slots=True, eq=False)
class Call:
    """An object: what would be called to make it, and what it would be filled with."""

    function: Any
    args: Any
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    members: list[Any] = field(default_factory=list)


# Whose functions act on the machine, not on numbers. `builtins` holds both kinds.
ACTING = frozenset({
    "os", "posix", "nt", "subprocess", "_posixsubprocess", "pty", "shutil", "socket", "_socket", "sys", "runpy",
    "importlib", "_imp", "ctypes", "_ctypes", "webbrowser", "code", "codeop", "pdb", "timeit", "cProfile",
    "profile", "bdb", "pip", "commands", "multiprocessing", "asyncio", "urllib", "http", "ftplib", "smtplib",
    "tempfile", "pathlib", "io", "_io", "signal", "threading", "pickle", "_pickle", "marshal",
})  # fmt: skip
ACTING_BUILTINS = frozenset({
    "eval", "exec", "execfile", "compile", "__import__", "open", "input", "getattr", "setattr", "delattr", "apply",
    "breakpoint", "globals", "vars",
})  # fmt: skip
HARMLESS = frozenset({("pathlib", "PosixPath"), ("pathlib", "PurePosixPath"), ("pathlib", "Path"),
    ("pathlib", "WindowsPath"), ("pathlib", "PureWindowsPath"), ("pathlib", "PurePath"), ("io", "BytesIO"),
    ("_io", "BytesIO"), ("io", "StringIO"), ("_io", "StringIO")})  # fmt: skip
MOST_DANGERS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Persistent:
    """A reference to something outside the pickle: in torch files, a storage."""

    id: Any


class _Mark:
    pass


_VALUES = frozenset({
    "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4",
    "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
})  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


def describe(file: IO[bytes], dangers: list[str] | None = None) -> Any:
    """The object that the next pickle in `file` describes.

    `dangers` gets what unpickling it would do to the machine, as it would be written.
    """
    machine = _Machine([] if dangers is None else dangers)
    try:
        for step, (opcode, arg, _) in enumerate(pickletools.genops(file)):
            if step > MOST_STEPS:
                raise Unreadable(f"its pickle has more than {MOST_STEPS:,} steps")
            machine.step(opcode.name, arg)
        return machine.stack[-1]
    except Unreadable:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeError) as error:  # fmt: skip
        raise Unreadable(f"corrupt pickle ({error})") from None


class _Machine:
    def __init__(self, dangers: list[str]) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.dangers = dangers

    def call(self, function: Any, args: Any) -> Call:
        """At once, not when all is read: what is called may be thrown away by the next step."""
        if len(self.dangers) < MOST_DANGERS and isinstance(function, Global) and acts(function):
            self.dangers.append(_written(function, args))
        return Call(function, args)

    def step(self, name: str, arg: Any) -> None:
        if name in _VALUES:
            self.stack.append(_CONSTANTS.get(name, arg))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[int(arg)] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[int(arg)])
        else:
            method = getattr(self, "op_" + name.lower(), None)
            if method is None:
                raise Unreadable(f"its pickle uses {name}, which no checkpoint needs")
            method(arg)

    def marked(self) -> list[Any]:
        """Everything since the last mark."""
        for i in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[i], _Mark):
                found = self.stack[i + 1 :]
                del self.stack[i:]
                return found
        raise ValueError("no mark")

    def op_proto(self, arg: Any) -> None:
        pass

    op_frame = op_stop = op_proto

    def op_mark(self, arg: Any) -> None:
        self.stack.append(_Mark())

    def op_pop(self, arg: Any) -> None:
        self.stack.pop()

    def op_pop_mark(self, arg: Any) -> None:
        self.marked()

    def op_dup(self, arg: Any) -> None:
        self.stack.append(self.stack[-1])

    def op_empty_list(self, arg: Any) -> None:
        self.stack.append([])

    op_empty_set = op_empty_list

    def op_empty_tuple(self, arg: Any) -> None:
        self.stack.append(())

    def op_empty_dict(self, arg: Any) -> None:
        self.stack.append({})

    def op_list(self, arg: Any) -> None:
        self.stack.append(self.marked())

    op_frozenset = op_list

    def op_tuple(self, arg: Any) -> None:
        self.stack.append(tuple(self.marked()))

    def op_tuple1(self, arg: Any) -> None:
        self.stack.append((self.stack.pop(),))

    def op_tuple2(self, arg: Any) -> None:
        self.stack[-2:] = [(self.stack[-2], self.stack[-1])]

    def op_tuple3(self, arg: Any) -> None:
        self.stack[-3:] = [(self.stack[-3], self.stack[-2], self.stack[-1])]

    def op_dict(self, arg: Any) -> None:
        made: dict[Any, Any] = {}
        _set(made, self.marked())
        self.stack.append(made)

    def op_append(self, arg: Any) -> None:
        value = self.stack.pop()
        _extend(self.stack[-1], [value])

    def op_appends(self, arg: Any) -> None:
        values = self.marked()
        _extend(self.stack[-1], values)

    op_additems = op_appends

    def op_setitem(self, arg: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _set(self.stack[-1], [key, value])

    def op_setitems(self, arg: Any) -> None:
        pairs = self.marked()
        _set(self.stack[-1], pairs)

    def op_global(self, arg: Any) -> None:
        module, _, name = arg.partition(" ")
        self.stack.append(Global(module, name))

    def op_stack_global(self, arg: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(Global(str(module), str(name)))

    def op_inst(self, arg: Any) -> None:
        module, _, name = arg.partition(" ")
        self.stack.append(self.call(Global(module, name), tuple(self.marked())))

    def op_obj(self, arg: Any) -> None:
        function, *args = self.marked()
        self.stack.append(self.call(function, tuple(args)))

    def op_reduce(self, arg: Any) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        self.stack.append(self.call(function, args))

    op_newobj = op_reduce

    def op_newobj_ex(self, arg: Any) -> None:
        keywords, args, function = self.stack.pop(), self.stack.pop(), self.stack.pop()
        made = self.call(function, args)
        made.state = keywords
        self.stack.append(made)

    def op_build(self, arg: Any) -> None:
        state = self.stack.pop()
        if isinstance(self.stack[-1], Call):
            self.stack[-1].state = state

    def op_persid(self, arg: Any) -> None:
        self.stack.append(Persistent(arg))

    def op_binpersid(self, arg: Any) -> None:
        self.stack.append(Persistent(self.stack.pop()))


def acts(function: Global) -> bool:
    """Whether calling it does something to the machine."""
    if (function.module, function.name) in HARMLESS:
        return False
    if function.module in ("builtins", "__builtin__"):
        return function.name in ACTING_BUILTINS
    return function.module.split(".")[0] in ACTING


def _written(function: Global, args: Any) -> str:
    """The call as in a program; arguments that are no plain values only hinted at."""
    parts = args if isinstance(args, tuple) else (args,)
    shown = [repr(a) if isinstance(a, PLAIN_KEYS) else "..." for a in parts[:4]]
    module = {"posix": "os", "nt": "os", "__builtin__": "builtins"}.get(
        function.module, function.module
    )
    return f"{module}.{function.name}({', '.join(shown)})"[:160]


def _set(target: Any, pairs: list[Any]) -> None:
    into = target.items if isinstance(target, Call) else target
    if not isinstance(into, dict) or len(pairs) % 2:
        raise ValueError("items for something that is no dictionary")
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        # Nested tuples can be made so that hashing them takes for ever: a stand-in is the key.
        into[key if isinstance(key, PLAIN_KEYS) else f"<key {len(into)}>"] = value


def _extend(target: Any, values: list[Any]) -> None:
    into = target.members if isinstance(target, Call) else target
    if not isinstance(into, list):
        raise ValueError("members for something that is no list")
    into.extend(values)
