# SPDX-License-Identifier: Apache-2.0
"""Phasor for torch: a differentiable rotation, and transformers' rotary module with exact angles.

The operators have fake kernels for torch.compile, and compute with the client of phasor.use() or in
process. They run on the CPU; apply_rope takes CUDA tensors too, whose positions must be on the CPU, if
the client has a server for them.
"""

from __future__ import annotations

from typing import Any

import torch

from . import _arrays, _calls, _errors, _functions, _spec

__all__ = [
    "RotaryEmbedding",
    "SinusoidalPositionalEmbedding",
    "Timesteps",
    "apply_rope",
    "apply_rotary_pos_emb",
    "patch",
    "verify",
]


@torch.library.custom_op("phasor::apply_rope", mutates_args=(), device_types=("cpu", "cuda"))
def _apply_rope(x: torch.Tensor, positions: torch.Tensor, spec: str, layout: str, inverse: bool) -> torch.Tensor:
    rotated: torch.Tensor = _functions.apply_rope(
        x.detach(), positions=positions, spec=_spec.parsed(spec), layout=layout, inverse=inverse
    )
    return rotated


@_apply_rope.register_fake
def _(x: torch.Tensor, positions: torch.Tensor, spec: str, layout: str, inverse: bool) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, positions, ctx.spec, ctx.layout, ctx.inverse = inputs
    ctx.save_for_backward(positions)


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (positions,) = ctx.saved_tensors
    width = gradient.shape[-1]
    back = _apply_rope(gradient, positions, _spec.transposed(ctx.spec, width), ctx.layout, not ctx.inverse)
    return back, None, None, None, None


_apply_rope.register_autograd(_backward, setup_context=_setup)


@torch.compiler.assume_constant_result
def _text_of(spec: Any, preset: str | None, config: Any) -> str:
    """The text of a spec. torch.compile calls it once, and does not trace it."""
    return _spec.to_spec(spec, preset, config)._json


def _as_positions(positions: Any) -> torch.Tensor:
    if isinstance(positions, torch.Tensor):
        return positions
    if torch.compiler.is_compiling():
        return _traced_positions(list(positions) if isinstance(positions, range) else positions)
    return torch.tensor(_arrays.position_array(positions))


def _traced_positions(positions: Any) -> torch.Tensor:
    """position_array as torch.compile can trace it. torch.tensor makes real numbers float32 by itself, and
    torch.as_tensor cuts traced integers to 32 bits."""
    if not isinstance(positions, (list, tuple, int, float)):
        return torch.as_tensor(positions)  # an array has its type
    traced = torch.tensor(positions)
    if not traced.is_floating_point():
        return traced
    for each in positions if isinstance(positions, (list, tuple)) else ():
        if isinstance(each, int) and abs(each) > 1 << 53:
            raise _errors.InvalidArgument("positions: an integer beside real numbers is above 2^53; must be integers only")
    return torch.tensor(positions, dtype=torch.float64)


def apply_rope(
    x: torch.Tensor,
    positions: Any,
    spec: _spec.SpecLike | None = None,
    *,
    preset: str | None = None,
    config: Any = None,
    layout: str = "thd",
    inverse: bool = False,
) -> torch.Tensor:
    """phasor.apply_rope as a differentiable operator, torch.ops.phasor.apply_rope.

    x: [(batch,) tokens, heads, head_dim]; with layout="htd", heads before tokens, as in
    transformers. positions: a tensor [tokens] or [batch, tokens], a range or a list. The gradient is
    the transposed rotation, of any order. torch.compile(fullgraph=True) takes it.
    """
    _calls._layout(layout)
    if isinstance(spec, _spec.Spec) and preset is None and config is None:
        text = spec._json
    else:
        text = _text_of(spec, preset, config)
    result: torch.Tensor = _apply_rope(x, _as_positions(positions), text, layout, inverse)
    return result


@torch.library.custom_op("phasor::cos_sin", mutates_args=(), device_types="cpu")
def _cos_sin(positions: torch.Tensor, spec: str, form: str, width: int, dtype: torch.dtype) -> torch.Tensor:
    """positions: [..., axes]. Gives [..., 2, width], but [..., width, 2] for the form "complex"."""
    axes = positions.shape[-1]
    rows = positions.reshape(-1, axes) if axes > 1 else positions.reshape(-1)
    table: torch.Tensor = _functions.encode(_spec.parsed(spec), rows, form=form, dtype=dtype, like=positions)
    return table.reshape(_rows(positions, form, width))


@_cos_sin.register_fake
def _(positions: torch.Tensor, spec: str, form: str, width: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(_rows(positions, form, width), dtype=dtype, device=positions.device)


def _rows(positions: torch.Tensor, form: str, width: int) -> tuple[int, ...]:
    return (*positions.shape[:-1], *((width, 2) if form == "complex" else (2, width)))


# How models have their tables. Columns of a pair.
_LAYOUTS = {"duplicated": ("cos_sin_duplicated", 2), "repeated": ("cos_sin_repeated", 2), "half": ("cos_sin", 1), "complex": ("complex", 1)}


class RotaryEmbedding(torch.nn.Module):
    """transformers' rotary module: forward(x, position_ids) -> (cos, sin), with exact angles.

    Args:
        config: a configuration of transformers, a dict, or a path; or spec, a Spec or the name of a
            preset.
        layout: "duplicated", cat(f, f), as most models have their tables; "repeated", each twice in
            a row, as GLM-4V; "half", once, as gpt-oss; "complex", one tensor of complex64, as Llama 4.

    forward(x, position_ids, layer_type=None): cos and sin [batch, tokens, columns] of x's type,
    each value rounded once. position_ids: [batch, tokens]; for specs of several axes (M-RoPE) also
    [axes, batch, tokens], as Qwen2-VL has them. layer_type: for configurations whose rules differ by
    layer.
    """

    def __init__(self, config: Any = None, *, spec: _spec.SpecLike | None = None, layout: str = "duplicated") -> None:
        super().__init__()
        if layout not in _LAYOUTS:
            raise _errors.InvalidArgument(f"layout: {layout!r}; must be one of {', '.join(_LAYOUTS)}")
        self._base = _spec.to_spec(spec, None, config)
        self._form, self._columns = _LAYOUTS[layout]
        self._tables: dict[str | None, tuple[str, int, int]] = {}
        try:
            self._table(None)
        except _errors.InvalidArgument as error:
            if error.field != "spec.layer_type":  # forward gets it
                raise

    def _table(self, layer_type: str | None) -> tuple[str, int, int]:
        """The spec of a layer, the columns of its table and its axes."""
        known = self._tables.get(layer_type)
        if known is None:
            spec = self._base if layer_type is None else self._base.replace(layer_type=layer_type)
            resolved = spec.resolve()
            known = self._tables[layer_type] = (spec._json, self._columns * len(resolved.pairs), resolved.spec.to_dict().get("axes", 1))
        return known

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None) -> Any:
        text, width, axes = self._table(layer_type)
        ids = position_ids[..., None] if axes == 1 else position_ids.expand(axes, -1, -1).movedim(0, -1)
        if self._form == "complex":
            return torch.view_as_complex(_cos_sin(ids, text, self._form, width, torch.float32))
        table = _cos_sin(ids, text, self._form, width, x.dtype)
        return table[..., 0, :], table[..., 1, :]

    def extra_repr(self) -> str:
        return repr(self._base)


@torch.library.custom_op("phasor::encode", mutates_args=(), device_types="cpu")
def _encode(positions: torch.Tensor, spec: str, width: int) -> torch.Tensor:
    rows: torch.Tensor = _functions.encode(_spec.parsed(spec), positions.detach(), dtype="float32", like=positions)
    return rows


@_encode.register_fake
def _(positions: torch.Tensor, spec: str, width: int) -> torch.Tensor:
    return torch.empty(*positions.shape, width, dtype=torch.float32, device=positions.device)


class Timesteps(torch.nn.Module):
    """diffusers' module of that name: forward(timesteps [n]) -> [n, num_channels] in float32, exact.

    sin first unless flip_sin_to_cos; frequencies 10000^(-j / (num_channels // 2 -
    downscale_freq_shift)), times scale.
    """

    def __init__(self, num_channels: int, flip_sin_to_cos: bool, downscale_freq_shift: float, scale: float = 1) -> None:
        super().__init__()
        self.num_channels = num_channels
        self.flip_sin_to_cos = flip_sin_to_cos
        self.downscale_freq_shift = downscale_freq_shift
        self.scale = scale
        preset = "timestep-cos-sin" if flip_sin_to_cos else "timestep-sin-cos"
        self._spec = _spec.Spec(
            preset, dim=num_channels, downscale_freq_shift=float(downscale_freq_shift), position_scale=float(scale)
        )._json

    def forward(self, timesteps: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = _encode(timesteps, self._spec, self.num_channels)
        return rows


class SinusoidalPositionalEmbedding(torch.nn.Module):
    """diffusers' module of that name: forward(x [batch, tokens, embed_dim]) -> x plus the encoding of
    the positions 0, 1, ... of its tokens, sines and cosines interleaved."""

    pe: torch.Tensor

    def __init__(self, embed_dim: int, max_seq_length: int = 32) -> None:
        super().__init__()
        rows = _functions.encode({"preset": "transformer", "dim": embed_dim}, range(max_seq_length), like=torch.empty(0))
        self.register_buffer("pe", rows[None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.pe[:, : x.shape[1]]
        return result


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def apply_rotary_pos_emb(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' function: rotates q and k [batch, heads, tokens, head_dim] by tables [batch,
    tokens, head_dim] of RotaryEmbedding; unsqueeze_dim=2 for [batch, tokens, heads, head_dim]."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin


# They need the classes above.
from ._patch import Patch, Report, patch, verify  # noqa: E402

__all__ += ["Patch", "Report"]
