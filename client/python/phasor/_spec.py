# SPDX-License-Identifier: Apache-2.0
"""What to compute: specs, presets, and all numbers of a spec."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import json
import os
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from . import _errors
from ._core import native

if TYPE_CHECKING:
    from ._client import Client

SpecLike: TypeAlias = "Spec | str | Mapping[str, Any]"

# Text fields whose value is not the name of an enumerator.
_FREE_TEXT = ("preset", "config_json", "encoder", "layer_type", "sub_config")
# A spec without these may be made: tensors or a later `replace` bring them.
_MAY_LACK = ("spec.dim: not set", "spec.head_dim: not set", "spec.layer_type: not set")


def _enumerators(value: Any) -> Any:
    """Names of enumerators in upper case, also inside `parity` and the like; tuples and arrays as lists."""
    if isinstance(value, str):
        return value.upper()
    if isinstance(value, Mapping):
        return {key: _enumerators(each) for key, each in value.items()}
    if isinstance(value, (tuple, list, range)):
        return [_enumerators(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return value


def _config_text(config: Any) -> str:
    """The JSON of a configuration: of transformers, as a dict, or in a file or folder."""
    if isinstance(config, (str, os.PathLike)):
        path = os.path.join(config, "config.json") if os.path.isdir(config) else config
        with open(path, encoding="utf-8") as file:
            return file.read()
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise TypeError(f"config: {type(config).__name__}; must be a dict, a path or a configuration of transformers")
    text = json.dumps(dict(config), default=str)
    if "Infinity" in text or "NaN" in text:  # as a limit on something else; JSON has no such numbers
        text = json.dumps(json.loads(text, parse_constant=str))  # texts, which no number of a rotation may be
    return text


class Spec:
    """What to compute: a base (a preset, a model's configuration or a server's encoder) and fields over it.

    Immutable, hashable, picklable. Checked when it is made: InvalidArgument names the field that is
    wrong, and NotFound the nearest preset. `dim` and `head_dim` may be left to the tensors of a call.

        Spec("llama-3.1-8b")
        Spec("timestep-sin-cos", dim=128)
        Spec(kind="rotary", head_dim=64, pairing="interleaved", rope_theta=1e6)
        Spec.from_config("Qwen/config.json")

    The fields are those of proto/phasor/v1/spec.proto; docs/conventions.md explains them. Names of
    enumerators are accepted in lower case.
    """

    __slots__ = ("_fingerprint", "_json", "_native")

    def __init__(
        self,
        preset: str | None = None,
        /,
        *,
        config: Any = None,
        encoder: str | None = None,
        layer_type: str | None = None,
        **fields: Any,
    ) -> None:
        values: dict[str, Any] = {
            key: value if key in _FREE_TEXT else _enumerators(value) for key, value in fields.items() if value is not None
        }
        if preset is not None:
            values["preset"] = preset
        if config is not None:
            values["config_json"] = _config_text(config)
        if encoder is not None:
            values["encoder"] = encoder
        if layer_type is not None:
            values["layer_type"] = layer_type
        self._set(json.dumps(values, sort_keys=True))

    def _set(self, text: str) -> None:
        self._json = text
        self._native = native.parse_spec(text)
        self._fingerprint: str | None = None
        if '"encoder"' in text:
            return  # only its server knows it
        try:
            self._fingerprint = native.fingerprint(self._native)
        except _errors.InvalidArgument as error:
            if not str(error).startswith(_MAY_LACK):
                raise

    @classmethod
    def _from_json(cls, text: str) -> Spec:
        spec = cls.__new__(cls)
        spec._set(text)
        return spec

    @classmethod
    def from_config(cls, config: Any, *, layer_type: str | None = None, **fields: Any) -> Spec:
        """The spec of a Hugging Face configuration: an object of transformers, a dict, or the path
        of a config.json or of its folder. `layer_type` chooses among rules that differ by layer."""
        return cls(config=config, layer_type=layer_type, **fields)

    def replace(self, **fields: Any) -> Spec:
        """The spec with other values of some fields; None removes a field."""
        values = {**self.to_dict(), **fields}
        return Spec(values.pop("preset", None), **{key: value for key, value in values.items() if value is not None})

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set."""
        return dict(json.loads(self._json))

    def resolve(self, *, client: Client | None = None) -> Resolved:
        """Every number of the spec. A spec with an encoder needs the client of its server."""
        from . import _functions

        return (client or _functions.current()).resolve(self)

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits; equal for equal meaning, on every machine.
        InvalidArgument: a field is missing. FailedPrecondition: an encoder, which only its server knows."""
        if self._fingerprint is None:
            if "encoder" in self.to_dict():
                raise _errors.FailedPrecondition("spec.encoder: only its server knows it; use Client.resolve(spec).fingerprint")
            native.fingerprint(self._native)  # raises what is missing
            raise AssertionError("a spec without a fingerprint has an error")
        return self._fingerprint

    def __repr__(self) -> str:
        fields = self.to_dict()
        parts = [repr(fields.pop("preset"))] if "preset" in fields else []
        return f"Spec({', '.join(parts + [f'{key}={value!r}' for key, value in fields.items()])})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self._json == other._json

    def __hash__(self) -> int:
        return hash(self._json)

    def __reduce__(self) -> Any:
        return (Spec._from_json, (self._json,))


@functools.lru_cache(maxsize=256)
def _of_preset(name: str) -> Spec:
    return Spec(name)


def to_spec(spec: SpecLike | None, preset: str | None = None, config: Any = None) -> Spec:
    """The spec that a call means. InvalidArgument: none is given, or several are."""
    if type(spec) is Spec and preset is None and config is None:
        return spec
    if (spec is not None) + (preset is not None) + (config is not None) != 1:
        raise _errors.InvalidArgument("spec: give exactly one of spec, preset and config")
    if preset is not None:
        return _of_preset(preset)
    if config is not None:
        return Spec.from_config(config)
    if isinstance(spec, Spec):
        return spec
    if isinstance(spec, str):
        return _of_preset(spec)
    if isinstance(spec, Mapping):
        values = dict(spec)
        return Spec(values.pop("preset", None), **values)
    raise TypeError(f"spec: {type(spec).__name__}; must be a Spec, the name of a preset, or a dict of fields")


@functools.lru_cache(maxsize=256)
def parsed(text: str) -> Spec:
    """The spec of a text, for operators that take a spec as text."""
    return Spec._from_json(text)


@functools.lru_cache(maxsize=256)
def transposed(text: str, head_dim: int) -> str:
    """The spec whose inverse is the transpose of a rotation: the same angles, but an amplitude that
    multiplies both ways (docs/conventions.md, "Inverse and gradient")."""
    spec = parsed(text)
    if spec._fingerprint is None and "encoder" not in spec.to_dict():
        spec = spec.replace(head_dim=head_dim)
    resolved = spec.resolve()
    if resolved.attention_factor == 1.0 and "xpos" not in resolved.spec.to_dict():
        return text
    fields = resolved.spec.to_dict()
    fields["attention_factor"] = fields["attention_factor"] / resolved.attention_factor**2
    if "xpos" in fields:
        fields["xpos"] = {**fields["xpos"], "inverse": not fields["xpos"].get("inverse", False)}
    return Spec(**fields)._json


@dataclasses.dataclass(frozen=True)
class Preset:
    """A named spec. `required_fields` are those that a call must set beside it."""

    name: str
    summary: str
    source: str
    required_fields: tuple[str, ...]
    fields: dict[str, Any]
    context_length: int | None
    verified: bool
    note: str

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Preset:
        fields = json.loads(values.pop("spec"))
        return cls(fields=fields, **values)


def presets(pattern: str = "*") -> list[Preset]:
    """The presets of this package whose name matches a shell pattern, e.g. "llama*"."""
    return [Preset._of(values) for values in native.presets() if fnmatch.fnmatchcase(values["name"], pattern)]


@dataclasses.dataclass(frozen=True)
class Pair:
    """One frequency: where it is used, and how fast it turns.

    `turns` is exact, per unit of position. `columns` are those of sine and cosine in a row of an
    encoding; `lanes` and `lanes_out` are a rotary pair's elements in a head before and after.
    """

    head: int
    pair: int
    axis: int
    turns: Fraction
    inv_freq: float
    phase: Fraction
    columns: tuple[int | None, int | None]
    lanes: tuple[int | None, int | None]
    lanes_out: tuple[int | None, int | None]


@dataclasses.dataclass(frozen=True)
class ModelLayer:
    """A layer of a model. `layer_type` is empty if all layers are of one kind. `spec` is None if the
    layer does not rotate; then `fingerprint` is empty. `width`: lanes of a head."""

    layer_type: str
    spec: Spec | None
    fingerprint: str
    attention_factor: float
    width: int


@dataclasses.dataclass(frozen=True)
class ModelPart:
    """A model in a configuration. `fingerprint` is that of all layers in order. `error` says why a part
    that was not named has no layers; otherwise it is empty."""

    sub_config: str
    model_type: str
    fingerprint: str
    error: str
    layers: tuple[ModelLayer, ...]

    @classmethod
    def _all(cls, parts: list[Any]) -> dict[str, ModelPart]:
        @functools.lru_cache(maxsize=None)
        def layer(layer_type: str, spec: Any) -> ModelLayer:
            if spec is None:
                return ModelLayer(layer_type, None, "", 1.0, 0)
            text, fingerprint, amplitude, width = spec
            return ModelLayer(layer_type, Spec._from_json(text), fingerprint, amplitude, width)

        return {
            name: cls(name, model_type, fingerprint, error, tuple([layer(*each) for each in layers]))
            for name, model_type, fingerprint, error, layers in parts
        }


def model_spec(config: Any, sub_config: str | None, fields: dict[str, Any]) -> Any:
    """The native spec of a whole model, which need not be that of a layer."""
    values = {key: value if key in _FREE_TEXT else _enumerators(value) for key, value in fields.items() if value is not None}
    values["config_json"] = _config_text(config)
    if sub_config is not None:
        values["sub_config"] = sub_config
    return native.parse_spec(json.dumps(values))


class Resolved:
    """Every number of a spec.

    Attributes:
        spec: the Spec with every field filled in. It resolves to itself.
        fingerprint: of the spec.
        attention_factor: the factor of sine and cosine.
        width: elements of a row, or of a head.
        pairs: a list of Pair.
        inv_freq: radians per position of each pair, float64, nearest to the exact value.
        axis: the axis of each pair.
    """

    def __init__(self, values: dict[str, Any], client: Client) -> None:
        self.spec: Spec = Spec._from_json(values["spec"])
        self.fingerprint: str = values["fingerprint"]
        self.attention_factor: float = values["amplitude"]
        self.width: int = values["width"]
        self.pairs: list[Pair] = [
            Pair(head, pair, axis, Fraction((whole << 64) + fraction, 1 << 64), inv_freq, Fraction(phase, 1 << 64), columns, lanes, out)
            for head, pair, axis, whole, fraction, inv_freq, phase, columns, lanes, out in values["pairs"]
        ]
        self.inv_freq: Any = np.array([pair.inv_freq for pair in self.pairs])
        self.axis: Any = np.array([pair.axis for pair in self.pairs])
        self._client = client

    def cos_sin(self, positions: Any, *, layout: str = "half", dtype: Any = "float32", like: Any = None) -> tuple[Any, Any]:
        """Rotary tables of the positions, two arrays [tokens, n], with attention_factor in them.

        layout: "half", one column a pair; "duplicated", cat(f, f) as in transformers; "repeated",
        each twice in a row.
        """
        forms = {"half": "cos_sin", "duplicated": "cos_sin_duplicated", "repeated": "cos_sin_repeated"}
        if layout not in forms:
            raise _errors.InvalidArgument(f"layout: {layout!r}; must be one of {', '.join(forms)}")
        table = self._client.encode(self.spec, positions, form=forms[layout], dtype=dtype, like=like)
        return table[..., 0, :], table[..., 1, :]

    def __repr__(self) -> str:
        return f"Resolved({self.spec!r})"
