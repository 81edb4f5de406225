# SPDX-License-Identifier: Apache-2.0
"""The arguments of calls as the tuples that client/python/native/calls.h reads."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from . import _arrays, _errors, _spec
from ._core import BIAS_FAMILIES, FORMS

_empty, _ndarray = np.empty, np.ndarray
_LAYOUTS = {"thd": 0, "htd": 1}
FORWARD, INVERSE, DELTA = range(3)


@dataclasses.dataclass(frozen=True)
class Pins:
    """What a call requires of how it is computed; FailedPrecondition if it would differ."""

    fingerprint: str = ""
    numerics_version: int = 0
    backend: str = ""


def pinned(pins: Any) -> tuple[str, int, str] | None:
    """The values of Pins, as the native module takes them."""
    if pins is None:
        return None
    if not isinstance(pins, Pins):
        raise TypeError(f"pins: a {type(pins).__name__}; must be phasor.Pins")
    return (pins.fingerprint, pins.numerics_version, pins.backend)


def _layout(layout: str) -> int:
    try:
        return _LAYOUTS[layout]
    except (KeyError, TypeError):
        raise _errors.InvalidArgument(f"layout: {layout!r}; must be 'thd' (tokens, heads, head_dim) or 'htd'") from None


def _scales(inv_scale: Any, count: int) -> tuple[Any, ...] | None:
    if inv_scale is None:
        return None
    if isinstance(inv_scale, (tuple, list)):
        if len(inv_scale) != count:
            raise _errors.InvalidArgument(f"inv_scale: {len(inv_scale)} numbers; must be one, or one per tensor ({count})")
        return tuple(inv_scale)
    return (float(inv_scale),) * count


def sequence(values: Any) -> tuple[Any, ...]:
    """The arrays of an argument that may be one array."""
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def _no_masks(**arrays: Any) -> None:
    for path, array in arrays.items():
        _arrays.check_mask(array, path)


def _positions(positions: Any, path: str = "positions") -> Any:
    """Positions that the native module may read: it looks at no masks, and rounds lists of integers and floats."""
    cls = type(positions)
    if cls is list or cls is tuple:
        _arrays.check_list(positions, path)
    elif cls is not _ndarray:
        _arrays.check_mask(positions, path)
    return positions


def _outputs(tensors: tuple[Any, ...], inplace: bool, out: Any, out_dtype: Any) -> tuple[Any, ...]:
    _arrays.check_masks(tensors, "tensors")
    if inplace:
        if out is not None or out_dtype is not None:
            raise _errors.InvalidArgument("inplace: set together with out or out_dtype; set one of them")
        return tensors
    if out is None and out_dtype is None:
        return tuple([_empty(each.shape, each.dtype) if type(each) is _ndarray else _arrays.empty_like(each, None) for each in tensors])
    if out is None:
        code = _arrays.dtype_code(out_dtype)
        return tuple([_arrays.empty_like(tensor, code) for tensor in tensors])
    if out_dtype is not None:
        raise _errors.InvalidArgument("out_dtype: set together with out; its arrays have a type")
    outs = sequence(out)
    if len(outs) != len(tensors):
        raise _errors.InvalidArgument(f"out: {len(outs)} arrays; must be one per tensor ({len(tensors)})")
    _arrays.check_masks(outs, "out")
    return outs


def rope(
    tensors: tuple[Any, ...],
    positions: Any,
    spec: Any,
    preset: str | None = None,
    config: Any = None,
    layout: str = "thd",
    inverse: bool = False,
    inplace: bool = False,
    out: Any = None,
    out_dtype: Any = None,
    inv_scale: Any = None,
    pins: Pins | None = None,
) -> tuple[Any, ...]:
    if not tensors:
        raise TypeError("apply_rope: no tensors; pass at least one array [tokens, heads, head_dim]")
    return (
        _spec.to_spec(spec, preset, config)._native,
        _positions(positions),
        tensors,
        _outputs(tensors, inplace, out, out_dtype),
        _layout(layout),
        INVERSE if inverse else FORWARD,
        None,
        None,
        _scales(inv_scale, len(tensors)),
        None,
        pinned(pins),
    )


def move(
    keys: tuple[Any, ...],
    from_positions: Any,
    positions: Any,
    spec: Any,
    from_spec: Any = None,
    layout: str = "thd",
    inplace: bool = False,
    out: Any = None,
    pins: Pins | None = None,
) -> tuple[Any, ...]:
    if not keys:
        raise TypeError("move_keys: no keys; pass at least one array [tokens, heads, head_dim]")
    return (
        _spec.to_spec(spec)._native,
        _positions(positions),
        keys,
        _outputs(keys, inplace, out, None),
        _layout(layout),
        DELTA,
        _positions(from_positions, "from_positions"),
        None if from_spec is None else _spec.to_spec(from_spec)._native,
        None,
        None,
        pinned(pins),
    )


def paged(
    keys: Any,
    values: Any,
    positions: Any,
    spec: Any,
    key_cache: Any,
    value_cache: Any,
    slot_mapping: Any,
    layout: str = "thd",
    inv_scale: Any = None,
    pins: Pins | None = None,
) -> tuple[Any, ...]:
    key_scale, value_scale = _scales(inv_scale, 2) or (None, None)
    _no_masks(keys=keys, values=values, key_cache=key_cache, value_cache=value_cache, slot_mapping=slot_mapping)
    return (
        _spec.to_spec(spec)._native,
        _positions(positions),
        (keys,),
        (key_cache,),
        _layout(layout),
        FORWARD,
        None,
        None,
        (key_scale,),
        (values, key_cache, value_cache, slot_mapping, value_scale),
        pinned(pins),
    )


def results(call: tuple[Any, ...]) -> Any:
    """What a rotation returns: one array, or a tuple; of jax where the inputs are."""
    tensors, outs = call[2], call[3]
    for tensor in tensors:
        if _arrays.KINDS.get(type(tensor)) == _arrays.READ_ONLY:
            outs = tuple([_arrays.to_kind(out, each) for each, out in zip(tensors, outs, strict=True)])
            break
    return outs[0] if len(outs) == 1 else outs


def _like(*arrays: Any) -> Any:
    """The first argument that is an array, for the kind of the result."""
    for array in arrays:
        if hasattr(array, "dtype"):
            return array
    return None


def encode(
    spec: Any,
    positions: Any,
    dtype: Any = None,
    out: Any = None,
    add_to: Any = None,
    scale: float = 1.0,
    form: str = "embedding",
    table: str | None = None,
    clip: bool = False,
    like: Any = None,
    pins: Pins | None = None,
) -> tuple[tuple[Any, ...], Any]:
    """The tuple of a call, and an array of the kind that its result is of."""
    source = out if out is not None else add_to
    code = _arrays.dtype_code(dtype) if dtype is not None else 1 if source is None else _arrays.dtype_of(source)
    if form not in FORMS:
        raise _errors.InvalidArgument(f"form: {form!r}; must be one of {', '.join(FORMS)}")
    if (spec is None) == (table is None):
        raise _errors.InvalidArgument("spec: give either a spec or table=, the name of a table")
    if source is not None:
        _no_masks(add_to=add_to, out=out)
    kind = _like(like, add_to, positions)
    if out is None and kind is not positions and _arrays.on_gpu(kind):
        if kind is not add_to:
            raise _errors.InvalidArgument("like: on a GPU, and the result would be in host memory; pass out=, an array on the GPU")
        out = _arrays.empty_like(add_to, code)
    call = (
        None if spec is None else _spec.to_spec(spec)._native,
        _positions(positions),
        code,
        FORMS[form],
        add_to,
        scale,
        out,
        table,
        clip,
        pinned(pins),
    )
    return call, kind


def bias(
    kind: str,
    heads: int,
    queries: Any = None,
    keys: Any = None,
    table: Any = None,
    dtype: Any = None,
    add_to: Any = None,
    out: Any = None,
    like: Any = None,
    pins: Pins | None = None,
    **fields: Any,
) -> tuple[tuple[Any, ...], Any]:
    """As `encode`."""
    source = out if out is not None else add_to
    code = _arrays.dtype_code(dtype) if dtype is not None else 1 if source is None else _arrays.dtype_of(source)
    unknown = fields.keys() - {"num_buckets", "max_distance", "bidirectional", "window"}
    if unknown:
        raise TypeError(f"attention_bias: unknown argument {sorted(unknown)[0]!r}")
    _no_masks(table=table, add_to=add_to, out=out)
    family = BIAS_FAMILIES.get(kind, -1)
    call = ("" if family >= 0 else kind, family, fields, heads, _positions(queries, "queries"), _positions(keys, "keys"), table, code, add_to, out)
    return (*call, pinned(pins)), _like(like, add_to, queries, keys, table)
