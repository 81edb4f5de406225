# SPDX-License-Identifier: Apache-2.0
"""Module functions: a call without a client of one's own."""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
from collections.abc import Iterator
from typing import Any

from . import _calls, _moves, _spec
from ._client import Client

_used: contextvars.ContextVar[Client | None] = contextvars.ContextVar("phasor_client", default=None)
_default: Client | None = None
_lock = threading.Lock()


def connect(target: str | None = None, **options: Any) -> Client:
    """A client of `target`; of $PHASOR_SERVER if that is None, and in process without either."""
    return Client(target or os.environ.get("PHASOR_SERVER") or "inproc:", **options)


@contextlib.contextmanager
def use(client: Client | None) -> Iterator[Client | None]:
    """Module functions use this client inside the block, in this thread or task."""
    token = _used.set(client)
    try:
        yield client
    finally:
        _used.reset(token)


def current() -> Client:
    """The client of module functions here: that of `use`, else one that connect() made once."""
    client = _used.get() or _default
    return client if client is not None else _make_default()


def _make_default() -> Client:
    global _default
    with _lock:
        if _default is None:
            _default = connect()
        return _default


def apply_rope(
    *tensors: Any,
    positions: Any,
    spec: _spec.SpecLike | None = None,
    preset: str | None = None,
    config: Any = None,
    layout: str = "thd",
    inverse: bool = False,
    inplace: bool = False,
    out: Any = None,
    out_dtype: Any = None,
    inv_scale: Any = None,
    pins: _calls.Pins | None = None,
    client: Client | None = None,
    timeout: float | None = None,
) -> Any:
    """Rotates queries, keys, ... by their positions.

        q, k = phasor.apply_rope(q, k, positions=range(4096), spec="llama-3.1-8b")

    Args:
        tensors: [(batch,) tokens, heads, head_dim] of float64, float32, float16 or bfloat16; with
            layout="htd", heads before tokens. Strided views are read without a copy if head_dim is
            contiguous.
        positions: one per token: an int (one token), a range, a list, or an array [tokens] or
            [batch, tokens] of any integer or real type, with a last dimension of axes if the spec
            has several; a Grid or Ragged.
        spec, preset, config: what to compute; exactly one of them. A str is a preset.
        inverse: rotates back.
        inplace: writes the results over the tensors and returns them.
        out: where to write instead, an array per tensor, which overlaps no other of the call.
        out_dtype: "float8_e4m3" or "float8_e5m2", for 16-bit tensors: results are multiplied by
            inv_scale (a number, or one per tensor), rounded to nearest even and saturated.

    Returns:
        One array, or a tuple of them for several tensors, of the inputs' kind and shape.

    Raises:
        InvalidArgument: a shape, type, stride, position or field is wrong. Nothing is written.
    """
    return (client or current())._rope(
        tensors, positions, spec, preset, config, layout, inverse, inplace, out, out_dtype, inv_scale, pins, timeout
    )


def apply_rope_(*tensors: Any, **kwargs: Any) -> None:
    """apply_rope in place."""
    apply_rope(*tensors, inplace=True, **kwargs)


def encode(
    spec: _spec.SpecLike | None,
    positions: Any,
    *,
    dtype: Any = None,
    out: Any = None,
    add_to: Any = None,
    scale: float = 1.0,
    form: str = "embedding",
    table: str | None = None,
    clip: bool = False,
    like: Any = None,
    pins: _calls.Pins | None = None,
    client: Client | None = None,
    timeout: float | None = None,
) -> Any:
    """Rows of an encoding, of a rotary table, or of a server's learned table.

        phasor.encode({"preset": "timestep-sin-cos", "dim": 128}, [10, 12, 16, 100])   # [4, 128]
        phasor.encode("llama-3", range(4096), form="cos_sin_duplicated")               # [4096, 2, 128]

    Args:
        dtype: of the result; float32, or that of out or add_to, if None.
        out: where to write, of the result's shape.
        add_to: the result is scale * add_to + encoding.
        form: "embedding", or a rotary table: "cos_sin", "cos_sin_duplicated", "complex", ...
            (docs/conventions.md).
        table: rows of this table instead; spec must be None. clip: positions outside it mean the
            nearest row.
        like: an array whose kind the result has; add_to or positions if None, numpy if those are
            no arrays.

    Returns:
        An array [tokens, dim], or [batch, tokens, dim] for positions with a batch.
    """
    return (client or current()).encode(
        spec,
        positions,
        dtype=dtype,
        out=out,
        add_to=add_to,
        scale=scale,
        form=form,
        table=table,
        clip=clip,
        like=like,
        pins=pins,
        timeout=timeout,
    )


def move_keys(*keys: Any, client: Client | None = None, **kwargs: Any) -> Any:
    """Moves cached keys, which were rotated by `from_positions`, to `positions`.

        k = phasor.move_keys(k, from_positions=range(512), positions=range(100, 612), spec="llama-3")

    One rotation by the difference, with one rounding. Keyword arguments: from_positions, positions,
    spec; from_spec if another spec rotated the keys; layout, inplace, out, pins, timeout as in
    apply_rope. docs/cached-keys.md has more. For
    keys of many layers, or in the pages of a cache, see move_paged.
    """
    return (client or current()).move_keys(*keys, **kwargs)


def write_paged(keys: Any, values: Any, *, client: Client | None = None, **kwargs: Any) -> None:
    """Rotates keys and writes them, and the values, into the pages of a cache. See Client.write_paged."""
    (client or current()).write_paged(keys, values, **kwargs)


def resolve_model(config: Any, *, client: Client | None = None, **kwargs: Any) -> dict[str, _spec.ModelPart]:
    """The specs of all layers of a model, and of the towers beside it, by the name of their sub_config.
    The key "" is the part that a spec without sub_config means: the language model.

        layers = phasor.resolve_model("Gemma/config.json")[""].layers
        layers[5].spec      # None: the layer does not rotate

    Args:
        config: as for Spec.from_config.
        sub_config: the only part to resolve.
        timeout: as in apply_rope.
        others: fields of a spec, which override those of all layers of the language model or of the
            part that sub_config names.
    """
    return (client or current()).resolve_model(config, **kwargs)


def move_paged(pools: Any, *, client: Client | None = None, **kwargs: Any) -> _moves.MoveResult:
    """Moves the cached keys of all layers of a model to other positions, where they lie.

        phasor.move_paged(
            [cache],  # [pages, page_size, heads, head_dim]
            layouts=[phasor.KeyLayout("nhd", "bfloat16", pages=64, page_size=16, heads=8, head_dim=128)],
            specs=[phasor.KeySpec("llama-3.1-8b")],
            layers=[phasor.KeyLayer(layout=0, spec=0, group=0)],
            groups=[phasor.KeyGroup([phasor.KeyRun(block_table=[3, 7], count=32, from_=512, to=0)])],
            mode="move",
        )

    Args:
        pools: writable contiguous arrays of any type, taken as bytes, apart from each other. In
            process they are changed where they lie, and so are those of Client.empty by a server on
            this host; others are sent there and back. If a "move" fails with Aborted, keys in memory
            that was changed where it lies have neither their old nor their new rotation.
        layouts, specs, layers, groups: where keys lie, how they are rotated, and which go where;
            docs/move-keys.md explains them.
        mode: "copy_on_write"; "move", in place; or "compare", which writes nothing and tells how
            what lies at the destinations differs from what a move would give.
        tolerance: "compare" only: the relative RMS difference beyond which a row is bad; if None, it
            follows from the code.
        pins, timeout: as in apply_rope.
    """
    return (client or current()).move_paged(pools, **kwargs)


def attention_bias(kind: str, *, client: Client | None = None, **kwargs: Any) -> Any:
    """An attention bias [heads, queries, keys].

        phasor.attention_bias("alibi", heads=8, queries=[1000], keys=range(1001))

    kind: "t5", "clipped", "swin", "alibi", "alibi_key", "deberta", or the name of a bias preset.
    Keyword arguments: heads; queries and keys, positions; table, an array or the name of a table of
    the server, for the kinds that have one; num_buckets, max_distance, bidirectional, window; dtype,
    add_to, out, like, pins, timeout as in encode. docs/tables-and-biases.md has more.
    """
    return (client or current()).attention_bias(kind, **kwargs)
