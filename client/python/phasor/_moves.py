# SPDX-License-Identifier: Apache-2.0
"""Moves of keys where they lie: what a call says, and the tuple that client/python/native/moves.h reads."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from . import _arrays, _calls, _errors, _spec
from ._core import KEY_CODES

_MODES = {"copy_on_write": 0, "move": 1, "compare": 2}

# A list, a range, or an array of integers.
Integers: TypeAlias = "Sequence[int] | np.ndarray[Any, Any]"
# The same with a row for each token: [tokens], or [tokens, axes] for specs of several axes.
TokenPositions: TypeAlias = "Sequence[int] | Sequence[Sequence[int]] | np.ndarray[Any, Any]"
# "bfloat16", "float8_e4m3", "q8_0", ...: docs/move-keys.md has all.
KeyCode: TypeAlias = str


@dataclasses.dataclass(frozen=True)
class KeyScales:
    """Where the scales of rows lie: distances in bytes, and the offset of the first scale from the first row."""

    offset: int = 0
    page_bytes: int = 0
    slot_bytes: int = 0
    head_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class KeyPlace:
    """A place in a pool."""

    pool: int = 0
    offset_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class KeyLayout:
    """Where the rows of a layer lie, by a name of docs/move-keys.md or by distances in bytes, and how
    lanes are stored. What is None follows from the name, or is dense."""

    name: str = ""
    code: KeyCode = "bfloat16"
    pages: int = 0
    page_size: int = 1
    heads: int = 0
    head_dim: int = 0
    layers: int = 1
    page_bytes: int | None = None
    slot_bytes: int | None = None
    head_bytes: int | None = None
    lane_bytes: int | None = None
    group_lanes: int | None = None
    group_bytes: int | None = None
    lanes_offset: int | None = None
    row_bytes: int | None = None
    scale: float | None = None
    scales: KeyScales | None = None
    hadamard: int = 0


@dataclasses.dataclass(frozen=True)
class KeySpec:
    """How keys shall be rotated, and how they were if that differs. Fingerprints are required if set;
    they are those of models if the layers have a `model_layer`."""

    spec: _spec.SpecLike
    from_spec: _spec.SpecLike | None = None
    fingerprint: str = ""
    from_fingerprint: str = ""


@dataclasses.dataclass(frozen=True)
class KeyLayer:
    """The keys of one layer. Numbers are indices of the lists of the call. Without a spec they are
    copied. `to_place` and `to_layout`: the destination of a copy, if it is another. `model_layer`: the
    layer's number in the model whose configuration the spec holds; its own spec follows from that, and
    a layer that does not rotate is copied."""

    layout: int = 0
    spec: int | None = None
    group: int = 0
    place: KeyPlace = KeyPlace()
    layer: int = 0
    copy_values: bool = True
    to_place: KeyPlace | None = None
    to_layout: int | None = None
    model_layer: int | None = None


@dataclasses.dataclass(frozen=True)
class KeyRun:
    """Consecutive tokens of a sequence, from place `first` on of the pages of `block_table`. The first
    one moves from position `from_` to position `to`, the next ones follow."""

    block_table: Integers = ()
    first: int = 0
    count: int = 0
    from_: int = 0
    to: int = 0
    to_block_table: Integers = ()
    to_first: int | None = None


@dataclasses.dataclass(frozen=True)
class KeySlots:
    """Tokens of any slots (page * page_size + place). Positions are [tokens] or [tokens, axes]."""

    slots: Integers = ()
    to_slots: Integers = ()
    from_positions: TokenPositions = ()
    positions: TokenPositions = ()


@dataclasses.dataclass(frozen=True)
class KeyGroup:
    """Tokens that several layers share: those of the runs, then those of `slots`. `slot_positions`: where
    the positions of all slots of the destination lie, uint32 [pages * page_size]."""

    runs: Sequence[KeyRun] = ()
    slots: KeySlots = KeySlots()
    slot_positions: KeyPlace | None = None


@dataclasses.dataclass(frozen=True)
class KeyDifference:
    """What "compare" found for one layer. `first_bad_...`: of the first bad row; None without one."""

    relative_rms: float
    rms: float
    reference_rms: float
    max_abs: float
    bad_rows: int
    first_bad_token: int | None
    first_bad_slot: int | None
    first_bad_head: int | None


@dataclasses.dataclass(frozen=True)
class MoveResult:
    """`fingerprints`: of `spec` and `from_spec`, for each KeySpec. `differences`: of "compare", one per
    layer. `moved_bytes` were read, and as many written, except by "compare"."""

    tokens: int
    moved_bytes: int
    fingerprints: tuple[tuple[str, str], ...]
    differences: tuple[KeyDifference, ...]

    @classmethod
    def _of(cls, values: dict[str, Any]) -> MoveResult:
        differences = tuple([KeyDifference(**each) for each in values["differences"]])
        return cls(**{**values, "differences": differences})


# --- fields as the native module reads them: functions of (value, path) -----------------------------

_Reader: TypeAlias = Callable[[Any, str], Any]


def _wrong(value: Any, path: str, wanted: str) -> TypeError:
    return TypeError(f"{path}: {type(value).__name__}; must be {wanted}")


def _integer(value: Any, path: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise _wrong(value, path, "an integer") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise _errors.InvalidArgument(f"{path}: {number} does not fit 64 bits; must be in [-2^63, 2^63)")
    return number


def _array(values: Any, path: str) -> np.ndarray[Any, Any]:
    """Integers of 64 bits, of any shape."""
    _arrays.check_numbers(values, path)
    try:
        array = np.asarray(values)
    except ValueError:
        raise _errors.InvalidArgument(f"{path}: lists of different lengths; must be one row per token") from None
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{path}: elements of type {array.dtype}; must be integers of 64 bits")
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 1 << 63:
        raise _errors.InvalidArgument(f"{path}: {array.max()} does not fit 64 bits; must be in [-2^63, 2^63)")
    return np.asarray(array, np.int64, order="C")


def _integers(values: Any, path: str) -> np.ndarray[Any, Any]:
    array = _array(values, path)
    if array.ndim != 1:
        raise _errors.InvalidArgument(f"{path}: shape {list(array.shape)}; must have one dimension")
    return array


def _by_token(array: np.ndarray[Any, Any], tokens: int, path: str) -> np.ndarray[Any, Any]:
    """The numbers of all tokens in a row, as the native module takes them."""
    given = array.shape != (0,)
    if given and (array.ndim not in (1, 2) or len(array) != tokens):
        raise _errors.InvalidArgument(f"{path}: shape {list(array.shape)}; must be [{tokens}] or [{tokens}, axes], as slots are")
    return array.reshape(-1)


def _key_slots(value: Any, path: str) -> tuple[Any, ...]:
    slots, to_slots, from_positions, positions = _record(KeySlots)(value, path)
    from_positions = _by_token(from_positions, len(slots), f"{path}.from_positions")
    return slots, to_slots, from_positions, _by_token(positions, len(slots), f"{path}.positions")


def _number(value: Any, path: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise _wrong(value, path, "a number") from None


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(value, path, "a str")
    return value


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise _wrong(value, path, "a bool")
    return bool(value)


def _one_of(names: dict[str, int]) -> _Reader:
    def read(value: Any, path: str) -> int:
        if not isinstance(value, str) or value.lower() not in names:
            raise _errors.InvalidArgument(f"{path}: {value!r}; must be one of {', '.join(names)}")
        return names[value.lower()]

    return read


def _native_spec(value: Any, path: str) -> Any:
    try:
        return _spec.to_spec(value)._native
    except (_errors.Error, TypeError) as error:
        raise type(error)(path + str(error).removeprefix("spec")) from None


def _record(cls: Any) -> _Reader:
    def read(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, cls):
            raise _wrong(value, path, f"a phasor.{cls.__name__}")
        fields = dataclasses.fields(cls)
        return tuple([_READERS[str(each.type)](getattr(value, each.name), f"{path}.{each.name.rstrip('_')}") for each in fields])

    return read


def _list(cls: Any) -> _Reader:
    read_one = _record(cls)

    def read(values: Any, path: str) -> list[tuple[Any, ...]]:
        if not isinstance(values, (list, tuple)):
            raise _wrong(values, path, f"a list of phasor.{cls.__name__}")
        return [read_one(value, f"{path}[{i}]") for i, value in enumerate(values)]

    return read


# By the annotations of the fields.
_READERS: dict[str, _Reader] = {
    "int": _integer,
    "Integers": _integers,
    "TokenPositions": _array,
    "float": _number,
    "str": _text,
    "bool": _flag,
    "KeyCode": _one_of(KEY_CODES),
    "_spec.SpecLike": _native_spec,
    "KeyScales": _record(KeyScales),
    "KeyPlace": _record(KeyPlace),
    "KeySlots": _key_slots,
    "Sequence[KeyRun]": _list(KeyRun),
}


def _or_none(read: _Reader) -> _Reader:
    return lambda value, path: None if value is None else read(value, path)


_READERS.update({f"{name} | None": _or_none(read) for name, read in _READERS.items()})


def call(
    pools: Any,
    layouts: Sequence[KeyLayout],
    layers: Sequence[KeyLayer],
    groups: Sequence[KeyGroup],
    specs: Sequence[KeySpec] = (),
    mode: str = "copy_on_write",
    tolerance: float | None = None,
    pins: _calls.Pins | None = None,
) -> tuple[Any, ...]:
    if not isinstance(pools, (list, tuple)):
        raise _wrong(pools, "pools", "a list of arrays")
    _arrays.check_masks(pools, "pools")
    return (
        tuple(pools),
        _list(KeyLayout)(layouts, "layouts"),
        _list(KeySpec)(specs, "specs"),
        _list(KeyLayer)(layers, "layers"),
        _list(KeyGroup)(groups, "groups"),
        _one_of(_MODES)(mode, "mode"),
        _or_none(_number)(tolerance, "tolerance"),
        _calls.pinned(pins),
    )
