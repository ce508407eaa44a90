"""An `nn.LSTM` on a CPU is one kernel for each layer, among dozens of views: recorded as a whole."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import nn

from whynan.record.schema import info_of
from whynan.record.tracer import Tracer
from whynan.seam.members import has_own_hooks, is_compiled, weights_of
from whynan.seam.private import (
    current_node,
    dispatch_modes,
    function_modes,
    has_global_hook,
    has_lstm_kernel,
    may_use_lstm_kernel,
    saved_tensors_hooks,
    tracing_state,
    transform,
)
from whynan.seam.quiet import pause, resume
from whynan.seam.stats import has_nonfinite


class Fused:
    """Lets an LSTM run without the recorder. When something bad came in or came out it runs once
    more, with the recorder: it draws no random numbers, so that its results are the same."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def call(
        self, original: Callable[..., Any], module: nn.LSTM, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        tracer = self.tracer
        suits = not kwargs and len(args) in (1, 2) and _suits(module, *args)
        mode = pause() if suits and _may_pause(tracer) else None
        if mode is None:
            return original(module, *args, **kwargs)
        try:
            result = original(module, *args)
        finally:
            resume(mode)
        output, state = result
        states = list(args[1] or ()) if args[1:] else []
        how = (
            module.bias,
            module.num_layers,
            module.dropout,
            module.training,
            module.bidirectional,
        )
        given = (args[0], states, weights_of(module), *how, module.batch_first)
        if not _record_whole(tracer, given, (output, *state), original.__code__):
            return original(module, *args)
        return result


def _may_pause(tracer: Tracer) -> bool:
    """Whether operations of this thread are recorded now, and a few could be left out."""
    return (
        tracer.active
        and not (tracer.quiet.local.own or tracer.stopping or tracer.shadowing)
        and current_node() is None
        and tracing_state() is None
        and dispatch_modes() == 1  # else a mode of the program's would see it twice
    )


def _record_whole(tracer: Tracer, args: Any, outs: Any, inside: CodeType) -> bool:
    """Record as one operation what ran while the recorder was off. False, and nothing is
    recorded, if an operand or a result is non-finite: then the parts have to be known."""
    local, quiet = tracer.local, tracer.quiet.local
    quiet.own += 1
    mode = pause()
    try:
        if any(has_nonfinite(t.detach()) for t in outs):
            return False
        record = tracer.begin(_INFO, args, {}, local, inside)
        if record.tainted_in:
            return False
        record.surely_finite = True
        tracer.end(record, _INFO, args, {}, outs, local)
    except Exception as error:
        tracer.failed(error)
    finally:
        resume(mode)
        quiet.own -= 1
    return True


_INFO = info_of(torch.ops.aten.lstm.input)
_FORWARD = nn.LSTM.forward
_PLAIN = (torch.Tensor, nn.Parameter)


def _suits(module: nn.LSTM, x: Any, state: Any = None) -> bool:
    """Whether the kernel computes it, and nothing of the program runs inside."""
    return (
        type(x) is torch.Tensor
        and x.is_cpu
        and x.dtype is torch.float32
        and nn.LSTM.forward is _FORWARD
        and (state is None or (type(state) is tuple and all(type(t) in _PLAIN for t in state)))
        and all(type(w) in _PLAIN for w in weights_of(module))
        and saved_tensors_hooks(False) is None
        and not module.proj_size
        and not (module.dropout and module.training)
        and not has_own_hooks(module)
        and not has_global_hook()
        and not is_compiled(module)
        and "forward" not in module.__dict__
        and has_lstm_kernel
        and may_use_lstm_kernel()
        and not torch.is_autocast_enabled("cpu")
        and not function_modes()
        and transform() is None
    )
