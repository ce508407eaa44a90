"""What the program took from a list of its own: the item that an origin was computed from."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from whynan.model import Evidence, OpRecord, Sample
from whynan.record.item_names import text_of
from whynan.record.records import Record, record_refs
from whynan.record.tracer import Tracer
from whynan.seam.private import has_storage, storage_id
from whynan.seam.sites import program_frames
from whynan.seam.tensors import tensors_in
from whynan.source.trees import expression_of, function_of

MAX_RECORDS = 5_000
MAX_ITEMS = 20_000
Listed = list[Any] | tuple[Any, ...]


def from_a_list(evidence: Evidence, tracer: Tracer, sample: Sample | None) -> Sample | None:
    """Of a sample whose batch is a slice of a list, its place there; without a batch, the one item
    whose tensors lead to the origin."""
    frames = [*program_frames(sys._getframe())]
    if sample is not None:
        return _in_slice(sample, frames) or sample
    record = tracer.records.get(evidence.origin.index)
    if record is None or record.in_optimizer:
        return None
    return _holding(_behind(record, tracer), frames) or _named_in(evidence.origin, frames)


def _named_in(origin: OpRecord, frames: list[FrameType]) -> Sample | None:
    """`torch.tensor(home["price"]).log()`, where `home` is an item of a list."""
    made = [m for o in origin.inputs for m in o.upstream]
    sites = [op.site for op in (origin, *made) if op.site is not None]
    for frame in frames:
        place = frame.f_code.co_filename, frame.f_code.co_qualname
        here = [s for s in sites if (s.file, s.function) == place]
        trees = [tree for s in here if (tree := expression_of(s.expression)) is not None]
        names = {n.id for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Name)}
        for name in names & frame.f_locals.keys():
            found = _place_of(frame.f_locals[name], frame)
            if found is not None:
                return found
    return None


def _place_of(value: Any, frame: FrameType) -> Sample | None:
    if value is None or isinstance(value, int | float | str | bytes | torch.nn.Module):
        return None
    for name, items in {**frame.f_globals, **frame.f_locals}.items():
        if type(items) is list and 2 < len(items) <= MAX_ITEMS:
            hits = [i for i, item in enumerate(items) if item is value]
            if len(hits) == 1:
                called = text_of(value)
                return Sample(index=0, size=1, dataset_index=hits[0], called=called, table=f"`{name}`")  # fmt: skip
    return None


def _behind(record: Record, tracer: Tracer) -> set[int]:
    """The storages that it was computed from; parameters lead everywhere."""
    pending, seen, found = [record], {record.index}, set[int]()
    while pending and len(seen) < MAX_RECORDS:
        current = pending.pop()
        for ref in record_refs(current):
            if ref.entry.leaf:
                continue
            found.add(ref.entry.cdata)
            before = (i for i, _ in reversed(ref.entry.writers) if i < current.index)
            maker = tracer.records.get(next(before, -1))
            if maker is not None and maker.index not in seen:
                seen.add(maker.index)
                pending.append(maker)
    return found


def _holding(storages: set[int], frames: list[FrameType]) -> Sample | None:
    best: tuple[int, Sample] | None = None
    for frame in frames:
        for name, items in [*frame.f_locals.items()]:
            if type(items) is not list or not 2 < len(items) <= MAX_ITEMS:
                continue
            hits = [i for i, item in enumerate(items) if _ids(item) & storages]
            # What is appended turn by turn ends with the newest.
            if len(hits) != 1 or hits[0] == len(items) - 1:
                continue
            found = Sample(
                index=0, size=1, dataset_index=hits[0], called=text_of(items[hits[0]]),
                table=f"`{name}`",
            )  # fmt: skip
            if best is None or len(items) > best[0]:
                best = len(items), found
    return None if best is None else best[1]


def _ids(item: Any) -> set[int]:
    parts = item
    if not isinstance(item, torch.Tensor | dict | list | tuple | str | int | float):
        parts = {} if isinstance(item, torch.nn.Module) else getattr(item, "__dict__", {})
    found = tensors_in(parts, 3)
    return {storage_id(t) for t in found if has_storage(t) and not t.requires_grad}


# ---- a slice --------------------------------------------------------------------------------


def _in_slice(sample: Sample, frames: list[FrameType]) -> Sample | None:
    for frame in frames:
        found = [(first, name, items) for first, name, items in _slices(frame, sample.size)]
        if found and len({first for first, _, _ in found}) == 1:
            first, name, items = next((f for f in found if text_of(f[2][f[0]])), found[0])
            at = first + sample.index
            if type(items[at]) is int:  # a list of places, perhaps shuffled
                name, at, items = _chosen_by(name, items[at], frame)
            if 0 <= at < len(items):
                called = text_of(items[at])
                return replace(sample, dataset_index=at, called=called, table=f"`{name}`")
    return None


def _chosen_by(places: str, at: int, frame: FrameType) -> tuple[str, int, Listed]:
    """`docs` of `[docs[i] for i in places[k : k + 8]]`."""
    body = function_of(frame.f_code)
    names = {**frame.f_globals, **frame.f_locals}
    for node in ast.walk(body) if body is not None else ():
        if not isinstance(node, ast.comprehension) or not isinstance(node.iter, ast.Subscript):
            continue
        if ast.unparse(node.iter.value) != places or not isinstance(node.target, ast.Name):
            continue
        for part in ast.walk(body) if body is not None else ():
            owner = part.value if isinstance(part, ast.Subscript) else None
            by = part.slice if isinstance(part, ast.Subscript) else None
            if isinstance(owner, ast.Name) and isinstance(by, ast.Name) and by.id == node.target.id:
                items = names.get(owner.id)
                if isinstance(items, list | tuple):
                    return owner.id, at, items
    return places, -1, ()


def _slices(frame: FrameType, size: int) -> Iterator[tuple[int, str, Listed]]:
    """`pairs[k : k + 8]`, as the names in it stand now."""
    body = function_of(frame.f_code)
    names = {**frame.f_globals, **frame.f_locals}
    for node in ast.walk(body) if body is not None else ():
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
            continue
        items = names.get(node.value.id) if isinstance(node.value, ast.Name) else None
        first = _number(node.slice.lower, names)
        last = _number(node.slice.upper, names)
        if not isinstance(items, list | tuple) or node.slice.step is not None:
            continue
        if first is None or last is None or first < 0 or len(items) <= size:
            continue
        if len(items[first:last]) == size:
            yield first, ast.unparse(node.value), items


def _number(node: ast.expr | None, names: dict[str, Any]) -> int | None:
    """Of whole numbers that are added and multiplied."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        found = names.get(node.id)
        return found if type(found) is int else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        parts: Sequence[int | None] = [_number(node.left, names), _number(node.right, names)]
        if None not in parts:
            a, b = (p or 0 for p in parts)
            return a + b if isinstance(node.op, ast.Add) else a * b
    return None
