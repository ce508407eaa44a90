"""Has the main thread do something, from another one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_Call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def in_main_thread(work: Callable[[], None]) -> Any:
    """Before it runs its next lines of Python. The result is to be kept until then.

    Not by a signal, which would end the program's own waiting.
    """

    def call(_: object) -> int:
        work()
        return 0

    kept = _Call(call)
    ctypes.pythonapi.Py_AddPendingCall(kept, None)
    return kept
