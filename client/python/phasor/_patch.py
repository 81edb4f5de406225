# SPDX-License-Identifier: Apache-2.0
"""patch and verify of phasor.torch: the rotary modules and timestep embedders of a model."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from . import _errors, _functions, _spec
from . import torch as ours

# A replacement must agree with the module at these positions, where f32 angles are good.
_NEAR = 16
_TOLERANCE = 1e-4
_FAR = (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)


@dataclasses.dataclass(frozen=True)
class _Found:
    """A module that has a replacement."""

    name: str
    module: torch.nn.Module
    replacement: ours.RotaryEmbedding | ours.Timesteps
    layer_types: tuple[str | None, ...]


def _layer_types(module: torch.nn.Module) -> tuple[str | None, ...]:
    """The values of forward's `layer_type`; None for modules without one."""
    if "layer_type" not in inspect.signature(module.forward).parameters:
        return (None,)
    types = dict.fromkeys(getattr(module.config, "layer_types", None) or [])
    rules = getattr(module.config, "rope_parameters", None) or {}
    if any(isinstance(rule, dict) for rule in rules.values()):  # layers without a rule have no attention
        types = {each: None for each in types if each in rules}
    return tuple(types) or (None,)


def _axes(module: torch.nn.Module) -> int:
    """Axes of the positions that a rotary module takes."""
    return 3 if hasattr(module, "mrope_section") else 1


def _tables(
    module: torch.nn.Module, positions: Sequence[int], layer_type: str | None, axes: int = 1
) -> tuple[torch.Tensor, ...]:
    """cos and sin [tokens, columns] of a rotary module in float32, or one complex tensor. Positions on
    other axes are twice and three times as far."""
    ids = torch.tensor([list(positions)])
    if axes > 1:
        ids = torch.stack([ids * (axis + 1) for axis in range(axes)])
    arguments = (torch.zeros(1, len(positions), 1), ids) + (() if layer_type is None else (layer_type,))
    with torch.no_grad():
        tables = module(*arguments)
    return (tables[0],) if isinstance(tables, torch.Tensor) else tuple(table[0] for table in tables)


def _refuse(name: str, module: torch.nn.Module, why: str) -> _errors.Unimplemented:
    return _errors.Unimplemented(f"{name}: {type(module).__name__} {why}; nothing was replaced")


def _agree(replacement: torch.nn.Module, module: torch.nn.Module, layer_type: str | None) -> bool:
    axes = _axes(module)
    mine, theirs = (_tables(each, range(_NEAR), layer_type, axes) for each in (replacement, module))
    return len(mine) == len(theirs) and all(
        one.shape == other.shape and bool((one - other).abs().max() <= _TOLERANCE) for one, other in zip(mine, theirs, strict=True)
    )


def _check_rotary(name: str, module: torch.nn.Module, layer_types: tuple[str | None, ...]) -> ours.RotaryEmbedding:
    try:
        for layout in ours._LAYOUTS:
            replacement = ours.RotaryEmbedding(module.config, layout=layout)
            if all(_agree(replacement, module, layer_type) for layer_type in layer_types):
                return replacement
        raise _refuse(name, module, "has other angles than its configuration says")
    except _errors.Unimplemented:
        raise
    except Exception as error:  # also what the module's own code raises
        raise _refuse(name, module, f"is not known ({error})") from error


def _check_timesteps(name: str, module: Any) -> ours.Timesteps:
    replacement = ours.Timesteps(module.num_channels, module.flip_sin_to_cos, module.downscale_freq_shift, module.scale)
    steps = torch.arange(_NEAR) / max(1.0, module.scale)
    if (replacement(steps) - module(steps)).abs().max() > _TOLERANCE:
        raise _refuse(name, module, "has other rows than its arguments say")
    return replacement


def _find(model: torch.nn.Module) -> Iterator[_Found]:
    """The modules with positions. Unimplemented: one that is not known."""
    for name, module in model.named_modules():
        kind = type(module).__name__
        if kind == "Timesteps" and hasattr(module, "downscale_freq_shift"):
            yield _Found(name, module, _check_timesteps(name, module), ())
        elif isinstance(module, ours.RotaryEmbedding):
            continue
        elif kind.endswith(("RotaryEmbedding", "RotaryPosEmbed")):
            if not hasattr(module, "config"):
                raise _refuse(name, module, "has no configuration that says what it computes")
            layer_types = _layer_types(module)
            yield _Found(name, module, _check_rotary(name, module, layer_types), layer_types)


class Patch:
    """What patch replaced: `replaced`, the names of modules. undo(), or the end of a `with` block, puts
    the model's own modules back."""

    def __init__(self, model: torch.nn.Module, found: list[_Found]) -> None:
        self._model = model
        self._found = found
        self.replaced: list[str] = [each.name for each in found]
        for each in found:
            self._set(each.name, each.replacement)

    def _set(self, name: str, module: torch.nn.Module) -> None:
        parent, _, child = name.rpartition(".")
        setattr(self._model.get_submodule(parent), child, module)

    def undo(self) -> None:
        found, self._found = self._found, []
        for each in found:
            self._set(each.name, each.module)

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def patch(model: torch.nn.Module) -> Patch:
    """Replaces the rotary modules of a transformers model, and the Timesteps of a diffusers model, by
    those of phasor.torch, whose angles are exact at any position.

        with phasor.torch.patch(model) as patch:
            print(patch.replaced)
            model.generate(...)

    Each module is first compared with its replacement at small positions. Unimplemented: a module
    that Phasor does not know or that does not agree, by name; then nothing was replaced.
    """
    found = list(_find(model))
    if not found:
        raise _errors.NotFound("model: has no rotary module or Timesteps that Phasor knows")
    return Patch(model, found)


@dataclasses.dataclass(frozen=True)
class Row:
    """How far a module is from exact at a position: the largest error of a cosine or sine."""

    module: str
    layer_type: str | None
    position: int
    error: float


class Report:
    """The result of verify: `rows`, a list of Row. str() is a table, and plot() a plot."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    @property
    def worst(self) -> Row:
        return max(self.rows, key=lambda row: row.error)

    def __str__(self) -> str:
        lines = [f"{'module':<40} {'layer type':<20} {'position':>9} {'largest error':>14}"]
        lines += [f"{row.module:<40} {row.layer_type or '':<20} {row.position:>9} {row.error:>14.3g}" for row in self.rows]
        return "\n".join(lines)

    def plot(self, axes: Any = None) -> Any:
        """Draws the errors by position, a line per module and layer type, on axes of matplotlib, which are
        new if None, and returns these: report.plot().figure.savefig("errors.png")."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure().subplots()
        for module, layer_type in dict.fromkeys((row.module, row.layer_type) for row in self.rows):
            rows = [row for row in self.rows if (row.module, row.layer_type) == (module, layer_type)]
            axes.loglog([row.position for row in rows], [row.error for row in rows], label=" ".join(filter(None, (module, layer_type))))
        axes.set_xlabel("position")
        axes.set_ylabel("largest error of a cosine or sine")
        axes.legend()
        return axes


def verify(model: torch.nn.Module, positions: Sequence[int] = _FAR) -> Report:
    """How far the cosines and sines of a model's rotary modules, in float32, are from exact. Positions are
    the same on all axes, as those of text.

        print(phasor.torch.verify(model))

    Unimplemented and NotFound as patch. Changes nothing.
    """
    rows = []
    for each in _find(model):
        if not isinstance(each.replacement, ours.RotaryEmbedding):
            continue
        for layer_type in each.layer_types:
            spec, _, axes = each.replacement._table(layer_type)
            places = list(positions) if axes == 1 else [[position] * axes for position in positions]
            form = each.replacement._form.replace("complex", "cos_sin")
            exact = torch.from_numpy(_functions.encode(_spec.parsed(spec), places, form=form, dtype="float64"))
            tables = _tables(each.module, positions, layer_type)
            parts = (tables[0].real, tables[0].imag) if len(tables) == 1 else tables
            for i, position in enumerate(positions):
                errors = [(exact[i, part] - own[i].double()).abs().max() for part, own in enumerate(parts)]
                rows.append(Row(each.name, layer_type, position, float(max(errors))))
    if not rows:
        raise _errors.NotFound("model: has no rotary module that Phasor knows")
    return Report(rows)
