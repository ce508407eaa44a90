"""The experiments people do by hand, applied to a program from outside, one per run."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from whynan.ops.table import that
from whynan.seam.private import LoaderIterator, step_post_hook, step_pre_hook

TOO_LARGE = 10.0  # times the usual scale of a weight, as for the cause bad_init
DRAWN = that("draws")
WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Intervention:
    """One experiment; `applied` counts how often it had something to change."""

    def __init__(self) -> None:
        self.applied = 0
        self._depth = 0

    def start(self, name: str) -> None:
        getattr(self, f"_{name}")()

    # ---- precision --------------------------------------------------------------------

    def _float64(self) -> None:
        torch.set_default_dtype(torch.float64)
        self._use(torch.float64, ("float16", "half", "bfloat16", "float32", "float"))
        home: Any = torch
        original = torch.from_numpy
        home.from_numpy = lambda array: _widened(original(array))
        self.applied += 1

    def _reference(self) -> None:
        """float64 throughout, with the random numbers that float32 draws."""
        self._float64()
        home: Any = torch
        for name in DRAWN:
            if callable(function := getattr(torch, name, None)):
                setattr(home, name, _drawn_in_float32(function))
            if callable(method := getattr(torch.Tensor, f"{name}_", None)):
                setattr(torch.Tensor, f"{name}_", _filled_in_float32(method))

    def _bfloat16(self) -> None:
        self._use(torch.bfloat16, ("float16", "half"), count=True)

    def _use(self, dtype: torch.dtype, names: tuple[str, ...], *, count: bool = False) -> None:
        """These types are read as that one: as attributes of torch, and as methods."""
        for owner in (torch.Tensor, nn.Module):
            for name in names:
                if hasattr(owner, name):
                    setattr(owner, name, self._cast(dtype, count))
        for owner, kind in ((torch.Tensor, "to"), (nn.Module, "to")):
            setattr(owner, kind, self._to(getattr(owner, kind), dtype, names, count))
        autocast: Any = torch.amp.autocast_mode.autocast
        original = autocast.__init__
        replaced = {getattr(torch, name) for name in names}

        @functools.wraps(original)
        def init(
            this: Any, device_type: str, dtype_: Any = None, *args: Any, **kwargs: Any
        ) -> None:
            wanted = kwargs.pop("dtype", dtype_)
            self.applied += count and wanted in replaced
            if dtype is torch.float64:
                kwargs["enabled"] = False
                wanted = None
            original(this, device_type, dtype if wanted in replaced else wanted, *args, **kwargs)

        autocast.__init__ = init

    def _cast(self, dtype: torch.dtype, count: bool) -> Callable[..., Any]:
        def cast(this: Any, *_: Any, **__: Any) -> Any:
            self.applied += count
            return this.to(dtype)

        return cast

    def _to(
        self, original: Callable[..., Any], dtype: torch.dtype, names: tuple[str, ...], count: bool
    ) -> Callable[..., Any]:
        replaced = {getattr(torch, name) for name in names}

        @functools.wraps(original)
        def to(this: Any, *args: Any, **kwargs: Any) -> Any:
            hit = any(a in replaced for a in args if isinstance(a, torch.dtype))
            hit |= kwargs.get("dtype") in replaced
            self.applied += count and hit
            args = tuple(dtype if isinstance(a, torch.dtype) and a in replaced else a for a in args)
            if kwargs.get("dtype") in replaced:
                kwargs["dtype"] = dtype
            return original(this, *args, **kwargs)

        return to

    # ---- optimizer --------------------------------------------------------------------

    def _clip(self) -> None:
        def clip(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            parameters = [p for g in optimizer.param_groups for p in g["params"]]
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            self.applied += 1

        step_pre_hook(clip)

    def _lr_tenth(self) -> None:
        self._scale_lr(0.1)

    def _lr_hundredth(self) -> None:
        self._scale_lr(0.01)

    def _scale_lr(self, factor: float) -> None:
        """For the step only, so that schedules go on as they were written."""

        def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            for group in optimizer.param_groups:
                group["_whynan_lr"] = group["lr"]
                group["lr"] = group["lr"] * factor
            self.applied += 1

        def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            for group in optimizer.param_groups:
                if "_whynan_lr" in group:
                    group["lr"] = group.pop("_whynan_lr")

        step_pre_hook(before)
        step_post_hook(after)

    def _no_momentum(self) -> None:
        def still(group: dict[str, Any]) -> bool:
            if group.get("momentum"):
                group["momentum"], group["nesterov"] = 0.0, False
                return True
            if "betas" in group and group["betas"][0]:
                group["betas"] = (0.0, *group["betas"][1:])
                return True
            return False

        self._groups(still)

    def _no_weight_decay(self) -> None:
        def without(group: dict[str, Any]) -> bool:
            had = bool(group.get("weight_decay"))
            group["weight_decay"] = 0.0
            return had

        self._groups(without)

    def _groups(self, change: Callable[[dict[str, Any]], bool]) -> None:
        def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            self.applied += sum(change(group) for group in optimizer.param_groups)

        step_pre_hook(before)

    # ---- model ------------------------------------------------------------------------

    def _default_init(self) -> None:
        """Layers whose weights are far too large begin as torch would have them."""
        seen: set[int] = set()

        def mend(module: nn.Module, _args: Any) -> None:
            if id(module) in seen:
                return None
            seen.add(id(module))
            for part in module.modules():
                if isinstance(part, WEIGHTED) and _is_large(part.weight):
                    with torch.random.fork_rng():
                        part.reset_parameters()
                    self.applied += 1
            return None

        self._outermost(mend)

    def _standardise(self) -> None:
        """Each feature with the mean and spread of the first batch."""
        scales: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor]] = {}

        def standardise(_module: nn.Module, args: Any) -> Any:
            if not args or not isinstance(args[0], torch.Tensor):
                return None
            x = args[0]
            if not x.is_floating_point() or x.dim() < 2 or len(x) < 2:
                return None
            key = tuple(x.shape[1:])
            if key not in scales:
                mean, spread = x.detach().mean(dim=0), x.detach().std(dim=0)
                scales[key] = mean, torch.where(spread > 0, spread, 1.0)
            mean, spread = scales[key]
            self.applied += 1
            return ((x - mean) / spread, *args[1:])

        self._outermost(standardise)

    def _outermost(self, work: Callable[[nn.Module, Any], Any]) -> None:
        def enter(module: nn.Module, args: Any) -> Any:
            self._depth += 1
            if self._depth == 1 and next(module.parameters(), None) is not None:
                return work(module, args)
            return None

        def leave(_module: nn.Module, _args: Any, _output: Any) -> None:
            self._depth -= 1

        register_module_forward_pre_hook(enter)
        register_module_forward_hook(leave, always_call=True)

    # ---- data -------------------------------------------------------------------------

    def _half_batch(self) -> None:
        loaders: Any = torch.utils.data.DataLoader
        original = loaders.__init__

        @functools.wraps(original)
        def init(loader: Any, dataset: Any, batch_size: Any = 1, *args: Any, **kwargs: Any) -> None:
            if isinstance(batch_size, int) and batch_size > 1:
                batch_size = batch_size // 2
                self.applied += 1
            original(loader, dataset, batch_size, *args, **kwargs)

        loaders.__init__ = init

    def _same_batch(self) -> None:
        original = LoaderIterator.__next__
        first: list[Any] = []

        def fetch(this: Any) -> Any:
            batch = original(this)  # so that the loop ends where it did
            if not first:
                first.append(batch)
            self.applied += 1
            return first[0]

        LoaderIterator.__next__ = fetch


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def _narrowed(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return torch.empty_like(value, dtype=torch.float32).copy_(value)  # `to` would widen it


def _drawn_in_float32(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def draw(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dtype") in (None, torch.float64) and "out" not in kwargs:
            tensors = any(isinstance(a, torch.Tensor) for a in (*args, *kwargs.values()))
            if not tensors or original.__name__.endswith("_like"):
                return _widened(original(*args, **{**kwargs, "dtype": torch.float32}))
            narrow = map(_narrowed, args)
            return _widened(original(*narrow, **{k: _narrowed(a) for k, a in kwargs.items()}))
        return original(*args, **kwargs)

    return draw


def _filled_in_float32(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def fill(this: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if this.dtype is not torch.float64:
            return original(this, *args, **kwargs)
        with torch.no_grad():
            narrow = original(torch.empty_like(this, dtype=torch.float32), *args, **kwargs)
            this.copy_(narrow)
        return this

    return fill


def _is_large(weight: torch.Tensor) -> bool:
    rms = float(weight.detach().to(torch.float64).square().mean().sqrt())
    return rms > TOO_LARGE * math.sqrt(2.0 / max(1, weight[0].numel()))
