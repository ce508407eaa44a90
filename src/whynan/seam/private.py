"""Every name of torch that is private or not in every version, bound under a name of ours.

One statement is one row: where the name is in torch, since which release, what is used without it
and what is lost then. What is bound here is torch's own object, so that the hot path pays nothing.
`support` reads the table. Longer than 300 lines because it is a table; the rows about other
implementations of an operation are in `kernels`, those about the compiler in `compiling`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from whynan.seam import compiling, default_device, kernels, profiling  # noqa: F401  # their rows
from whynan.seam.names import NOTHING, needed, optional, read

if TYPE_CHECKING:
    from torch._ops import OpOverload, OpOverloadPacket
    from torch.utils._python_dispatch import TorchDispatchMode

Tensor = torch.Tensor

# ---- autograd ---------------------------------------------------------------------------

current_node: Callable[[], Any] = needed(
    "torch._C._current_autograd_node",
    since="2.0",
    lost="An operation of the backward pass cannot be told from one of the forward pass.",
)
sequence_number: Callable[[], int] = needed(
    "torch._C._autograd._get_sequence_nr",
    since="2.1",
    lost="Nothing connects a gradient with the line whose derivative it is.",
)
read(
    "torch._C._functions.AccumulateGrad._sequence_nr",
    since="2.1",
    lost="Nothing connects a gradient with the line whose derivative it is.",
)
_engine = needed(
    "torch.autograd.graph._engine_run_backward",
    since="2.3",
    lost="It is not seen when a backward pass begins and ends.",
)
ENGINE: Any = getattr(_engine, "__code__", None)  # the frame of a backward pass
BACKWARD = (torch.autograd, "_engine_run_backward")  # what to wrap
saved_tensors_hooks: Callable[[bool], Any] = optional(
    "torch._C._autograd._top_saved_tensors_default_hooks",
    lambda _ignored: True,
    since="2.8",
    instead="every layer of an LSTM is recorded operation by operation",
    lost="Recording an `nn.LSTM` takes longer.",
)
read(
    "torch.autograd.forward_ad._current_level",
    since="1.13",
    instead="the plain form of each stable function",
    lost="The functions of `whynan.stable` are slower.",
)

# ---- dispatch ---------------------------------------------------------------------------

if TYPE_CHECKING:
    Mode = TorchDispatchMode
    Overload = OpOverload
    Packet = OpOverloadPacket
else:
    Mode = needed(
        "torch.utils._python_dispatch.TorchDispatchMode",
        since="1.13",
        lost="No operation can be recorded.",
    )
    Overload = needed(
        "torch._ops.OpOverload", since="1.13", lost="An operation cannot be told from a function."
    )
    Packet = needed(
        "torch._ops.OpOverloadPacket",
        since="1.13",
        lost="It is not known which operations take a number.",
    )
read(
    "torch.utils._python_dispatch.TorchDispatchMode._should_skip_dynamo",
    since="2.11",
    instead="nothing: such a torch wraps no mode",
    lost=NOTHING,
)
current_mode: Callable[[], Any] = needed(
    "torch.utils._python_dispatch._get_current_dispatch_mode",
    since="1.13",
    lost="The recorder cannot be taken off for an update.",
)
push_mode: Callable[[Any], None] = needed(
    "torch.utils._python_dispatch._push_mode",
    since="1.13",
    lost="The recorder cannot be put back after an update.",
)
pop_mode: Callable[[], Any] = needed(
    "torch.utils._python_dispatch._pop_mode",
    since="1.13",
    lost="The recorder cannot be taken off for an update.",
)
modes_off: Callable[[], AbstractContextManager[Any]] = needed(
    "torch.utils._python_dispatch._disable_current_modes",
    since="2.0",
    lost="A program's own modes would see the work of whynan.",
)
function_modes_off: Callable[[], AbstractContextManager[Any]] = needed(
    "torch._C.DisableTorchFunction",
    since="1.13",
    lost="A program's own modes would see the work of whynan.",
)
dispatch_modes: Callable[[], int] = needed(
    "torch._C._len_torch_dispatch_stack",
    since="1.13",
    lost="It is not known whether the program has modes of its own.",
)
function_modes: Callable[[], int] = needed(
    "torch._C._len_torch_function_stack",
    since="1.13",
    lost="It is not known whether the program has modes of its own.",
)
no_dispatch: Any = needed(
    "torch._C._disabled_torch_dispatch_impl",
    since="1.13",
    lost="A parameter cannot be told from a tensor subclass that unpacks itself.",
)
tracing_state: Callable[[], Any] = needed(
    "torch._C._get_tracing_state",
    since="1.13",
    lost="`torch.jit.trace` would write down what whynan computes.",
)
transform: Callable[[], Any] = needed(
    "torch._C._functorch.peek_interpreter_stack",
    since="2.0",
    lost="`torch.func` would transform what whynan computes.",
)
transforms_active: Callable[[], bool] = optional(
    "torch._C._are_functorch_transforms_active",
    lambda: True,
    since="1.13",
    instead="the plain form of each stable function",
    lost="The functions of `whynan.stable` are slower.",
)
COMPOSITE: Any = needed(
    "torch._C.DispatchKey.CompositeImplicitAutograd",
    since="1.13",
    lost="Operations in inference mode cannot be taken apart.",
)
has_kernel: Callable[[str, str], bool] = needed(
    "torch._C._dispatch_has_kernel_for_dispatch_key",
    since="1.13",
    lost="It is not known which operations are made of others.",
)
_OVERLOAD = "It is not known what an operation reads and writes."
read("torch.ops.aten.add.Tensor._op", since="1.13", lost="No operation can be run.")
read("torch.ops.aten.add.Tensor._op_dk", since="1.13", lost="Operations in inference mode cannot be taken apart.")  # fmt: skip
read("torch.ops.aten.add.Tensor._schema", since="1.13", lost=_OVERLOAD)
read("torch.ops.aten.add.Tensor._opname", since="2.4", lost="Operations have no names.")
read("torch.ops.aten.add.Tensor._overloadname", since="1.13", lost="Operations have no names.")

# ---- tensors and their memory -----------------------------------------------------------

has_storage: Callable[[Any], bool] = needed(
    "torch._C._has_storage", since="1.13", lost="Tensors without memory would be looked into."
)
storage_id: Callable[[Tensor], int] = needed(
    "torch._C._storage_id", since="1.13", lost="It is not known which tensors share memory."
)
base_of: Callable[[Tensor], Tensor | None] = operator.attrgetter(
    read(
        "torch.Tensor._base",
        since="1.13",
        lost="A view of a parameter that a distribution refuses is not known for that parameter.",
    )
)
address_of: Callable[[torch.UntypedStorage], int] = operator.attrgetter(
    read(
        "torch.UntypedStorage._cdata",
        since="1.13",
        lost="It is not known which tensors share memory.",
    )
)
read(
    "torch.UntypedStorage._fix_weakref",
    since="2.2",
    until="2.9",
    instead="a plain weak reference, which is enough from 2.10 on",
    lost="Up to 2.9: a storage counts as gone while the program still has it.",
)
read(
    "torch.UntypedStorage._expired",
    since="2.0",
    until="2.9",
    instead="a plain weak reference, which is enough from 2.10 on",
    lost="Up to 2.9: a storage counts as there while its memory is gone.",
)
is_zero_tensor: Callable[[Tensor], bool] = needed(
    "torch._C.TensorBase._is_zerotensor",
    since="2.2",
    lost="Zeros of forward-mode autograd, which have no memory, would be looked into.",
)
version_of: Callable[[Tensor], int] = operator.attrgetter(
    read(
        "torch.Tensor._version",
        since="1.13",
        lost="It is not known whether a batch or a buffer was written to.",
    )
)
stored_values: Callable[[Tensor], Tensor] = needed(
    "torch._C.TensorBase._values", since="2.2", lost="Sparse gradients cannot be looked into."
)
item: Callable[[Tensor], float] = needed(
    "torch._C.TensorBase.item", since="2.2", lost="A value cannot be read without a reader's notice."
)  # fmt: skip
foreach_norm: Callable[[list[Tensor], int, torch.dtype | None], Any] = optional(
    "torch._foreach_norm",
    lambda tensors, ord, dtype: [torch.linalg.vector_norm(t, ord, dtype=dtype) for t in tensors],
    since="1.13",
    instead="one norm after the other",
    lost="The guard is slower on a device.",
)


def _copy_each(targets: list[Tensor], sources: list[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


foreach_copy: Callable[[list[Tensor], list[Tensor]], Any] = optional(
    "torch._foreach_copy_",
    _copy_each,
    since="2.1",
    instead="one copy after the other",
    lost="Running statistics take longer to keep.",
)
LOCAL_PART = read(
    "torch.distributed.tensor.DTensor._local_tensor",
    since="2.5",
    instead="the distributed tensor itself",
    lost="Sharded parameters are not looked into.",
)

is_wrapped: Callable[[Any], bool] = needed(
    "torch._C._functorch.is_functorch_wrapped_tensor",
    since="2.0",
    lost="Tensors that `torch.func` hands to a function would be looked into.",
)
is_functional: Callable[[Any], bool] = needed(
    "torch._is_functional_tensor",
    since="1.13",
    lost="Tensors that `functionalize` hands to a function would be looked into.",
)
subclass_functions_off: Callable[[], AbstractContextManager[Any]] = needed(
    "torch._C.DisableTorchFunctionSubclass",
    since="2.0",
    lost="A program's own tensors would hear of the questions of whynan.",
)

# ---- modules ----------------------------------------------------------------------------

has_global_hook: Callable[[], bool] = optional(
    "torch.nn.modules.module._has_any_global_hook",
    lambda: True,
    since="2.8",
    instead="every layer of an LSTM is recorded operation by operation",
    lost="Recording an `nn.LSTM` takes longer.",
)
hooks_before: dict[Any, Any] = needed(
    "torch.nn.modules.module._global_forward_pre_hooks",
    since="1.13",
    lost="What a model returns in evaluation is not seen.",
)
hooks_after: dict[Any, Any] = needed(
    "torch.nn.modules.module._global_forward_hooks",
    since="1.13",
    lost="What a model returns in evaluation is not seen.",
)
MODULE_CALL: Any = getattr(
    needed(
        "torch.nn.Module._call_impl",
        since="1.13",
        lost="The outermost model cannot be told from its parts.",
    ),
    "__code__",
    None,
)
NormBase: type[torch.nn.Module] = needed(
    "torch.nn.modules.batchnorm._NormBase",
    since="1.13",
    lost="Running statistics, which change without a new version, are not put back.",
)
_SHORTCUT = "The shortcut for `nn.LSTM` could leave out a hook."
OWN_HOOKS = (
    read("torch.nn.Module._forward_hooks", since="1.13", lost=_SHORTCUT),
    read("torch.nn.Module._forward_pre_hooks", since="1.13", lost=_SHORTCUT),
    read("torch.nn.Module._backward_hooks", since="1.13", lost=_SHORTCUT),
    read("torch.nn.Module._backward_pre_hooks", since="2.0", lost=_SHORTCUT),
)
read("torch.nn.Module._compiled_call_impl", since="2.1", lost=_SHORTCUT)
read(
    "torch.nn.Module._forward_hooks_always_called",
    since="2.0",
    lost="After a model raised in evaluation, what the next one returns may not be seen.",
)
read("torch.nn.LSTM._flat_weights", since="1.13", lost=_SHORTCUT)
buffers_of: Callable[[torch.nn.Module], dict[str, Tensor | None]] = operator.attrgetter(
    read("torch.nn.Module._buffers", since="1.13", lost="Running statistics are not put back.")
)
CHILDREN = read(
    "torch.nn.Module._modules", since="1.13", lost="A half-made module would be asked for its parts."
)  # fmt: skip
has_lstm_kernel: bool = optional(
    "torch._C._has_mkldnn",
    False,
    since="2.1",
    instead="every layer of an LSTM is recorded operation by operation",
    lost="Recording an `nn.LSTM` takes longer.",
)
may_use_lstm_kernel: Callable[[], bool] = optional(
    "torch._C._get_mkldnn_enabled",
    lambda: False,
    since="1.13",
    instead="every layer of an LSTM is recorded operation by operation",
    lost="Recording an `nn.LSTM` takes longer.",
)
ScriptFunction: Any = needed(
    "torch._C.ScriptFunction", since="1.13", lost="Lines inside TorchScript are not known."
)
ScriptMethod: Any = needed(
    "torch._C.ScriptMethod", since="1.13", lost="Lines inside TorchScript are not known."
)

# ---- data loaders -----------------------------------------------------------------------

LoaderIterator: Any = needed(
    "torch.utils.data.dataloader._BaseDataLoaderIter",
    since="1.13",
    lost="A step cannot be given its batches once more.",
)
_LOADER = "torch.utils.data.dataloader._BaseDataLoaderIter."
_WORKERS = "torch.utils.data.dataloader._MultiProcessingDataLoaderIter."
_ITEMS = "It is not known which items of the dataset a batch is made of."
NEXT_INDEX = read(f"{_LOADER}_next_index", since="1.13", lost=_ITEMS)
read(f"{_LOADER}_num_yielded", since="1.13", instead="the loader counts as begun", lost=_ITEMS)
read(f"{_WORKERS}_send_idx", since="1.13", instead="the loader counts as one without workers", lost=_ITEMS)  # fmt: skip
read(f"{_WORKERS}_in_order", since="2.6", instead="batches come in order, as they did", lost=NOTHING)  # fmt: skip
read(f"{_LOADER}_num_workers", since="1.13", instead="0", lost="A batch from a worker counts as made here.")  # fmt: skip
read(f"{_LOADER}_dataset", since="1.13", lost="An item cannot be made once more.")
read(
    "torch.utils.data.dataloader._SingleProcessDataLoaderIter._dataset_fetcher",
    since="1.13",
    instead="the batch as it was given",
    lost="What the dataset's code does is not recorded.",
)
read(f"{_LOADER}_collate_fn", since="1.13", lost="An item cannot be made once more.")
read(f"{_LOADER}_pin_memory", since="1.13", instead="memory counts as not pinned", lost=NOTHING)

# ---- other parts ------------------------------------------------------------------------

default_store: Callable[[], Any] = optional(
    "torch.distributed.distributed_c10d._get_default_store",
    lambda: None,
    since="1.13",
    instead="each rank decides for itself",
    lost="The ranks of a job cannot agree on what went wrong.",
)
SET_DEFAULT_GROUP = read(
    "torch.distributed.distributed_c10d._update_default_pg",
    since="1.13",
    instead="`init_process_group`, where the program calls it",
    lost="A job is not recognised as one where `init_device_mesh` makes its process group.",
)
functional_collectives: Any = optional(
    "torch.distributed._functional_collectives",
    None,
    since="2.0",
    instead="there are none",
    lost=NOTHING,
)
step_pre_hook: Callable[[Callable[..., Any]], Any] = needed(
    "torch.optim.optimizer.register_optimizer_step_pre_hook",
    since="2.0",
    lost="It is not seen when a step begins.",
)
step_post_hook: Callable[[Callable[..., Any]], Any] = needed(
    "torch.optim.optimizer.register_optimizer_step_post_hook",
    since="2.0",
    lost="It is not seen when a step ends.",
)
set_stance: Callable[[str], Any] | None = optional(
    "torch.compiler.set_stance",
    None,
    since="2.6",
    instead="compiled functions run as they are",
    lost="Inside a compiled function no line is known.",
)
for _name in ("all_gather_single", "reduce_scatter_single"):
    read(
        f"torch.distributed.{_name}",
        since="2.13",
        instead="the older forms, which sharded modules of such a torch call",
        lost=NOTHING,
    )
