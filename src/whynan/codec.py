"""Frozen values to plain JSON values and back, led by their type hints alone."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any, Literal, TypeVar

T = TypeVar("T")
Reader = Callable[[Any], Any]

NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# A text that reads like a number is written as {"text": "inf"}: either may stand in a field.
TEXT = "text"


class Mismatch(ValueError):
    """A JSON value that does not fit its type; the message says where."""

    def __init__(self, complaint: str, place: str = "") -> None:
        super().__init__(f"{place}: {complaint}" if place else complaint)
        self.complaint = complaint
        self.place = place

    def inside(self, outer: str) -> Mismatch:
        """The same complaint, seen one level further out."""
        dot = "." if self.place and not self.place.startswith("[") else ""
        return Mismatch(self.complaint, f"{outer}{dot}{self.place}")


def encode(value: Any) -> Any:
    """Plain values that strict JSON can hold; fields at their defaults are left out.

    >>> encode((1.5, float("-inf"), None))
    [1.5, '-inf', None]
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: encode(item) for name, item in _told(value)}
    return _plain(value)


def decode(kind: type[T], plain: Any) -> T:
    """The value of that type; raises `Mismatch` when the JSON does not hold one.

    >>> decode(tuple[float, ...], [1.5, "-inf"])
    (1.5, -inf)
    """
    result: T = _reader(typing.cast(Hashable, kind))(plain)
    return result


# ---- writing --------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, str) and value in NONFINITE:
        return {TEXT: value}
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return encode(value)
    raise TypeError(f"a recording cannot hold {type(value).__name__}: {value!r}")


def _told(value: Any) -> list[tuple[str, Any]]:
    found = []
    for name, default in _defaults(typing.cast(Hashable, type(value))):
        item = getattr(value, name)
        if item is not default and (type(item) is not type(default) or item != default):
            found.append((name, item))
    return found


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((f.name, _default(f)) for f in dataclasses.fields(kind))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default  # MISSING equals nothing, so such a field is always written


# ---- reading --------------------------------------------------------------------------


@cache
def _reader(hint: Any) -> Reader:
    origin, args = _origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _record_reader(typing.cast(type, hint))
    if origin is Literal:
        return _literal_reader(args)
    if origin is tuple:
        return _tuple_reader(args)
    if origin is Mapping:
        return _mapping_reader(_reader(args[0]), _reader(args[1]))
    if origin is types.UnionType:
        return _union_reader(args)
    if hint in _primitives:
        return _primitives[hint]
    raise TypeError(f"a recording cannot hold a field of type {hint!r}")


def _origin(hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin is typing.Union:
        return types.UnionType
    return Mapping if isinstance(origin, type) and issubclass(origin, Mapping) else origin


def _expect(accepts: Callable[[Any], bool], wanted: str) -> Reader:
    def read(plain: Any) -> Any:
        if not accepts(plain):
            raise Mismatch(f"expected {wanted}, found {_brief(plain)}")
        return plain

    return read


def _brief(plain: Any) -> str:
    text = repr(plain)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _read_float(plain: Any) -> float:
    if isinstance(plain, str) and plain in NONFINITE:
        return NONFINITE[plain]
    if isinstance(plain, (int, float)):
        return plain
    raise Mismatch(f"expected a number, found {_brief(plain)}")


def _is_text(plain: Any) -> bool:
    return isinstance(plain, dict) and set(plain) == {TEXT}


def _read_text(plain: Any) -> str:
    if _is_text(plain):
        plain = plain[TEXT]
    if isinstance(plain, str):
        return plain
    raise Mismatch(f"expected a text, found {_brief(plain)}")


_primitives: dict[Any, Reader] = {
    int: _expect(lambda plain: isinstance(plain, int), "a whole number"),
    bool: _expect(lambda plain: isinstance(plain, bool), "true or false"),
    str: _read_text,
    type(None): _expect(lambda plain: plain is None, "null"),
    float: _read_float,
}


def _literal_reader(allowed: tuple[Any, ...]) -> Reader:
    wanted = "one of " + ", ".join(map(str, allowed))
    accept = _expect(lambda plain: isinstance(plain, str) and plain in allowed, wanted)
    return lambda plain: accept(plain[TEXT] if _is_text(plain) else plain)


def _union_reader(members: tuple[Any, ...]) -> Reader:
    optional, others = type(None) in members, [m for m in members if m is not type(None)]
    if len(others) == 1:
        only = _reader(others[0])
        return lambda plain: None if plain is None and optional else only(plain)
    unsupported = [m for m in others if m not in _primitives]
    if unsupported:
        raise TypeError(f"a recording cannot tell {unsupported[0]!r} from {others!r}")
    accepted = tuple(others) + ((type(None),) if optional else ())

    def read(plain: Any) -> Any:
        if str in accepted and isinstance(plain, dict):
            return _read_text(plain)
        if float in accepted and isinstance(plain, str) and plain in NONFINITE:
            return NONFINITE[plain]
        if not isinstance(plain, accepted):
            raise Mismatch(f"expected a plain value, found {_brief(plain)}")
        return plain

    return read


def _tuple_reader(args: tuple[Any, ...]) -> Reader:
    if len(args) == 2 and args[1] is Ellipsis:
        item_reader = _reader_of_later(args[0])
        return lambda plain: tuple(_read_items(plain, lambda place: item_reader))
    readers = [_reader_of_later(arg) for arg in args]

    def read(plain: Any) -> Any:
        if isinstance(plain, list) and len(plain) != len(readers):
            raise Mismatch(f"expected {len(readers)} items, found {len(plain)}")
        return tuple(_read_items(plain, readers.__getitem__))

    return read


def _read_items(plain: Any, reader_at: Callable[[int], Reader]) -> list[Any]:
    if not isinstance(plain, list):
        raise Mismatch(f"expected a list, found {_brief(plain)}")
    items = []
    for place, item in enumerate(plain):
        try:
            items.append(reader_at(place)(item))
        except Mismatch as error:
            raise error.inside(f"[{place}]") from None
    return items


def _mapping_reader(read_key: Reader, read_item: Reader) -> Reader:
    whole = read_key is _primitives[int]  # JSON has no keys but texts

    def read(plain: Any) -> dict[Any, Any]:
        if not isinstance(plain, dict):
            raise Mismatch(f"expected an object, found {_brief(plain)}")
        items = {}
        for key, item in plain.items():
            try:
                items[_whole(key) if whole else read_key(key)] = read_item(item)
            except Mismatch as error:
                raise error.inside(f"[{key!r}]") from None
        return items

    return read


def _whole(key: str) -> int:
    try:
        return int(key)
    except ValueError:
        raise Mismatch("expected a whole number as key") from None


def _reader_of_later(hint: Any) -> Reader:
    """Types refer to themselves (an operand holds operations): look them up when reading."""
    return lambda plain: _reader(hint)(plain)


def _record_reader(kind: type) -> Reader:
    hints = typing.get_type_hints(kind)
    fields = [
        (f.name, _default(f) is dataclasses.MISSING, _reader_of_later(hints[f.name]))
        for f in dataclasses.fields(kind)
    ]

    def read(plain: Any) -> Any:
        if not isinstance(plain, dict):
            raise Mismatch(f"expected an object, found {_brief(plain)}")
        values = {}
        for name, required, read_item in fields:
            if name in plain:
                try:
                    values[name] = read_item(plain[name])
                except Mismatch as error:
                    raise error.inside(name) from None
            elif required:
                raise Mismatch("missing", name)
        return kind(**values)

    return read
