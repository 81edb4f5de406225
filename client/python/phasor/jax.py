# SPDX-License-Identifier: Apache-2.0
"""Phasor for jax: a rotation and encodings that jax.jit, jax.grad and jax.vmap take.

They call back to the host (jax.pure_callback), which computes with the client that phasor.use() named
when the function was traced, or in process.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from . import _arrays, _calls, _errors, _functions, _spec
from ._client import Client

__all__ = ["apply_rope", "encode"]

jax: Any = importlib.import_module("jax")  # type checkers would take this file for it


def _as_positions(positions: Any) -> Any:
    """Positions as an array of jax, which without jax_enable_x64 has 32 bits: every number exactly."""
    if isinstance(positions, jax.Array):
        return positions
    exact = _arrays.position_array(positions)
    theirs = exact.astype(jax.dtypes.canonicalize_dtype(exact.dtype))
    if not np.array_equal(exact, theirs):
        raise _errors.InvalidArgument(f"positions: jax rounds them to {theirs.dtype}; set jax.config.update('jax_enable_x64', True)")
    return jax.numpy.asarray(theirs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4, 5))
def _rotate(x: Any, positions: Any, spec: str, layout: str, inverse: bool, client: Client) -> Any:
    def on_host(x: Any, positions: Any) -> Any:
        return client.apply_rope(np.asarray(x), positions=np.asarray(positions), spec=_spec.parsed(spec), layout=layout, inverse=inverse)

    return jax.pure_callback(on_host, jax.ShapeDtypeStruct(x.shape, x.dtype), x, positions, vmap_method="sequential")


def _forward(x: Any, positions: Any, *rest: Any) -> tuple[Any, Any]:
    return _rotate(x, positions, *rest), positions


def _backward(spec: str, layout: str, inverse: bool, client: Client, positions: Any, gradient: Any) -> tuple[Any, None]:
    return _rotate(gradient, positions, _spec.transposed(spec, gradient.shape[-1]), layout, not inverse, client), None


_rotate.defvjp(_forward, _backward)


def apply_rope(
    x: Any,
    positions: Any,
    spec: _spec.SpecLike | None = None,
    *,
    preset: str | None = None,
    config: Any = None,
    layout: str = "thd",
    inverse: bool = False,
) -> Any:
    """phasor.apply_rope for jax.

    x: [(batch,) tokens, heads, head_dim]; with layout="htd", heads before tokens. positions: an array
    [tokens] or [batch, tokens], a range or a list. The gradient is the transposed rotation, of any order,
    in reverse mode. jax.vmap calls the host once for each entry.
    """
    _calls._layout(layout)
    text = _spec.to_spec(spec, preset, config)._json
    return _rotate(x, _as_positions(positions), text, layout, inverse, _functions.current())


@functools.lru_cache(maxsize=256)
def _result_of(spec: str, shape: tuple[int, ...], dtype: str, form: str, client: Client) -> Any:
    rows = client.encode(_spec.parsed(spec), np.zeros(shape, np.int32), dtype=dtype, form=form)
    return jax.ShapeDtypeStruct(rows.shape, rows.dtype)


def encode(spec: _spec.SpecLike, positions: Any, *, dtype: Any = "float32", form: str = "embedding") -> Any:
    """phasor.encode for jax: rows [*positions.shape, width], or a rotary table (form="cos_sin", ...)."""
    client, text, name = _functions.current(), _spec.to_spec(spec)._json, _arrays.NAMES[_arrays.dtype_code(dtype)]
    positions = _as_positions(positions)

    def on_host(positions: Any) -> Any:
        return client.encode(_spec.parsed(text), np.asarray(positions), dtype=name, form=form)

    return jax.pure_callback(on_host, _result_of(text, positions.shape, name, form, client), positions, vmap_method="sequential")
