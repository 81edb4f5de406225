# SPDX-License-Identifier: Apache-2.0
"""upstream.py: finds every model_type of the installed transformers that has a rotary embedding, and
observes what the model's own code does with a configuration.

survey() reads the sources: which rotary class and which attention class take which configuration.
observe() makes the rotary embedding, runs the model's attention layer with zero weights, and keeps
what the layer passed to its rotation. The rotation is then applied to one-hot heads, which shows
every pair of lanes, its direction, and its angle on every axis.
"""

import ast
import collections
import dataclasses
import functools
import importlib
import inspect
import itertools
import json
import pathlib
import re
import sys

import torch
import transformers.models
from transformers import PreTrainedConfig

from by_hand import ADOPTED

TABLE = pathlib.Path(__file__).parents[2] / "kernels" / "spec" / "models.json"
SOURCES = pathlib.Path(transformers.models.__file__).parent
ROTATION = re.compile(r"^(apply_.*(rot|rope)|rotate_queries_or_keys)")
ROTARY = re.compile(r"Rotary|RopePosition")
ROTATED = ("q", "k", "v", "x", "xq", "xk", "query", "key", "tensor", "hidden_states", "query_states", "key_states")
TOKENS = 7  # a number of tokens that is no number of heads
PROBE = ((1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2, 3, 5), (0, 0, 0), (0, 0, 0))  # position of each token on (up to) three axes


def package(path):
    return f"transformers.models.{path.parent.name}.{path.stem}"


@functools.cache
def table_rows():
    """model_type -> its row of models.json, as this process found it."""
    return {row["model_type"]: row for row in json.loads(TABLE.read_text())["models"]}


@functools.cache
def config_classes():
    found = {}
    for path in sorted(SOURCES.glob("*/configuration_*.py")):
        module = importlib.import_module(package(path))
        for name, value in vars(module).items():
            if inspect.isclass(value) and issubclass(value, PreTrainedConfig) and value.__module__ == module.__name__:
                found[name] = value
    return found


def annotated(function):
    """Argument -> the configuration classes that its annotation names."""
    return {a.arg: re.findall(r"\w+Config\w*", ast.unparse(a.annotation)) if a.annotation else [] for a in function.args.args}


def rotary_calls(init):
    """(class, configurations of its first argument) of every rotary embedding that an __init__ makes."""
    names = annotated(init)
    for call in ast.walk(init):
        called = ast.unparse(call.func).split(".")[-1] if isinstance(call, ast.Call) else ""
        if ROTARY.search(called) and called[0].isupper():
            first = [*call.args, *(k.value for k in call.keywords)][:1]
            yield called, [c for a in first for c in names.get(ast.unparse(a).removeprefix("self."), [])]


def called_by(functions):
    return set(re.findall(r"\b(\w+)\(", " ".join(ast.unparse(f) for f in functions)))


@dataclasses.dataclass
class Users:
    rotary: list = dataclasses.field(default_factory=list)  # (module, class)
    attention: list = dataclasses.field(default_factory=list)


@functools.cache
def survey():
    """Name of a configuration class -> Users."""
    users = collections.defaultdict(Users)
    unannotated = collections.defaultdict(list)
    known = config_classes()
    for path in sorted(SOURCES.glob("*/modeling_*.py")):
        for cls in ast.parse(path.read_text()).body:
            if not isinstance(cls, ast.ClassDef):
                continue
            methods = {f.name: f for f in cls.body if isinstance(f, ast.FunctionDef)}
            init = methods.pop("__init__", None)
            if init is None:
                continue
            configs = [c for cs in annotated(init).values() for c in cs if c in known]
            found = []
            if ROTARY.search(cls.name):
                found += [("rotary", c, cls.name) for c in configs]
            found += [("rotary", c, called) for called, cs in rotary_calls(init) for c in cs if c in known]
            if re.search("ttention|MLA$", cls.name) and any(ROTATION.match(name) for name in called_by(methods.values())):
                found += [("attention", c, cls.name) for c in configs]
                unannotated[package(path)].append(cls.name)
            for kind, config, name in found:
                listed = getattr(users[config], kind)
                if (package(path), name) not in listed:
                    listed.append((package(path), name))
    for config, (model, rotary, attention) in ADOPTED.items():
        module = f"transformers.models.{model}.modeling_{model}"
        users[config] = Users([(module, rotary)], [(module, attention)])
    for user in users.values():
        for module in {m for m, _ in user.rotary} - {m for m, _ in user.attention}:
            user.attention += [(module, name) for name in unannotated[module]]
    return {name: user for name, user in users.items() if user.rotary}


def configuration(cls, fields):
    config = cls(**json.loads(json.dumps(fields)))
    config._attn_implementation = "eager"
    return config


def attribute(config, name):
    """The attribute, or None where it is absent or differs from layer to layer."""
    try:
        return getattr(config, name, None)
    except Exception:  # noqa: BLE001  # transformers' own: ambiguous between layers
        return None


def rotary_module(module, name, config):
    return getattr(importlib.import_module(module), name)(config)


def kinds_of(rotary):
    """The kinds of layers for which the module has frequencies, or [None]."""
    return sorted(rotary.rope_type) if isinstance(getattr(rotary, "rope_type", None), dict) and rotary.rope_type else [None]


def frequencies(rotary):
    """What of a rotary module decides its numbers, by name."""
    tensors = [*rotary.named_buffers(), *((k, v) for k, v in vars(rotary).items() if isinstance(v, torch.Tensor))]
    found = {k: v.detach().flatten().tolist() for k, v in tensors if "inv_freq" in k and "original" not in k and "long" not in k}
    return found | {k: v for k, v in vars(rotary).items() if "attention_scaling" in k or k == "mrope_section"}


def ids(axes):
    at = torch.tensor(PROBE)
    return at[:, 0][None] if axes == 1 else at[:, :axes] if axes == 2 else at.T[:, None]


def probe(rotary, kind, dtype=torch.float32):
    """(positions, cosines and sines) in the form that the module takes, for a model of that type."""
    takes = inspect.signature(rotary.forward).parameters
    more = {"layer_type": kind} if kind and "layer_type" in takes else {}
    axial = getattr(rotary, "rope_type", "") == "axial"
    orders = [ids(2), ids(2)[None], torch.tensor(PROBE), ids(1)] if axial else [ids(1), ids(3), ids(2).T[:, None]]
    if axial and "include_temporal=" in inspect.getsource(sys.modules[type(rotary).__module__]):
        orders = orders[2:3]  # the class takes any number of axes; the model passes three
    if hasattr(rotary, "mrope_section"):
        orders = orders[1:2]
    if type(rotary).__name__.startswith("NeoMME"):
        orders = orders[2:]
    if type(rotary).__name__.startswith("Gemma4Vision"):
        orders = orders[1:]
    failed = None
    for at in orders:
        try:
            return at, rotary(torch.zeros(1, 1, 1, dtype=dtype), at, **more)
        except Exception as error:  # noqa: BLE001
            failed = failed or error
    raise failed


def zeros_of(dtype, shape):
    """One zero seen as a tensor of that shape: no memory, and products are not computed."""
    return torch.zeros((), dtype=dtype).expand(shape)


def with_zeros(layer, dtype):
    for module in layer.modules():
        for name, value in module._parameters.items():
            if value is not None:
                module._parameters[name] = torch.nn.Parameter(zeros_of(dtype, value.shape), requires_grad=False)
        for name, value in module._buffers.items():
            if value is not None:
                module._buffers[name] = torch.zeros(value.shape, dtype=value.dtype)
    return layer.eval()


class Reached(Exception):
    """The layer has rotated and goes on to attend."""


@dataclasses.dataclass
class Capture:
    function: object = None  # the first rotation
    arguments: inspect.BoundArguments = None
    rotated: torch.Tensor = None
    query: torch.Tensor = None  # as attention gets it


def pattern(width):
    return torch.tensor([(i * 37 % 101 - 50) / 16 for i in range(width)])


def constructed(cls, config, layer, dtype):
    known = {"config": config, "layer_idx": layer, "layer_type": (attribute(config, "layer_types") or [None] * 999)[layer], "is_causal": True, "kv_in_dim": 64}
    heads = attribute(config, "num_attention_heads")
    known |= {"num_heads": heads, "num_key_value_heads": attribute(config, "num_key_value_heads") or heads}
    given = {}
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        if name in known and (name in ("config", "layer_idx") or parameter.default is inspect.Parameter.empty):
            given[name] = known[name]
        elif parameter.default is inspect.Parameter.empty and parameter.kind not in (2, 4):
            given[name] = getattr(config, name)
    with torch.device("meta"):
        layer = cls(**given)
    own = {name: type(child)(config) for name, child in layer.named_children() if ROTARY.search(type(child).__name__)}
    layer = with_zeros(layer, dtype)
    for name, child in own.items():
        setattr(layer, name, child)
    return layer


class Tables(tuple):
    """Cosines and sines, also for layers that take those of every kind by name."""

    def __getitem__(self, key):
        return self if isinstance(key, str) else tuple.__getitem__(self, key)


def call(layer, at, tables, flat, mask, dtype):
    width = next((m.in_features for m in layer.modules() if isinstance(m, torch.nn.Linear)), None)
    x = torch.zeros(TOKENS, width, dtype=dtype) if flat else torch.zeros(1, TOKENS, width, dtype=dtype)
    known = dict.fromkeys(("hidden_states", "hidden_state", "x", "query", "key", "value", "encoder_hidden_states"), x)
    known |= {"position_embeddings": tables, "position_ids": at, "cu_seqlens": torch.tensor([0, TOKENS], dtype=torch.int32), "shared_kv_states": {}}
    known |= {"attention_mask": mask, "merged_attention_mask": None, "alibi": None, "layer_idx": 0, "context_hidden_states": x[:, :0]}
    if isinstance(tables, tuple):
        known |= {"position_embeddings": Tables(tables), "cos": tables[0], "sin": tables[1]}
    takes = inspect.signature(layer.forward).parameters
    layer(**{name: value for name, value in known.items() if name in takes})


def attend(module, name, config, index, at, tables, kind, dtype=torch.float32):
    """Runs the attention layer in that type up to attention."""
    code = importlib.import_module(module)
    layer = constructed(getattr(code, name), config, index, dtype)
    seen = Capture()

    def watched(function):
        def replaced(*arguments, **named):
            bound = inspect.signature(function).bind(*arguments, **named)
            for key, value in bound.arguments.items():
                if key in ROTATED and isinstance(value, torch.Tensor):
                    bound.arguments[key] = pattern(value.shape[-1]).expand(value.shape).to(value.dtype)
            heads = [value for key, value in bound.arguments.items() if key in ROTATED and isinstance(value, torch.Tensor)]
            # A rotation may call another one.
            first = seen.function is None and any(TOKENS in value.shape[:-1] for value in heads)
            if first:
                seen.function, seen.arguments = function, bound
            try:
                out = function(*bound.args, **bound.kwargs)
            except Exception:
                seen.function = None if first else seen.function
                raise
            if first:
                seen.rotated = out[0] if isinstance(out, tuple) else out
            return out

        return replaced

    def eager(_, query, *more, **named):
        seen.query = query
        raise Reached

    saved = {k: v for k, v in vars(code).items() if inspect.isfunction(v) and v.__module__ == module and ROTATION.match(k)}
    for key, value in saved.items():
        setattr(code, key, watched(value))
    if hasattr(code, "eager_attention_forward"):
        saved["eager_attention_forward"] = code.eager_attention_forward
        code.eager_attention_forward = eager
    failed = None
    linear = torch.nn.functional.linear
    torch.nn.functional.linear = lambda x, weight, bias=None: zeros_of(x.dtype, (*x.shape[:-1], weight.shape[0])).clone()
    try:
        for flat, mask in itertools.product((False, True), (torch.zeros(1, 1, TOKENS, TOKENS), None)):
            try:
                call(layer, at, tables, flat, mask, dtype)
            except Reached:
                pass
            except Exception as error:  # noqa: BLE001  # another layer may take other arguments
                failed = failed or error
            if seen.function is not None:
                return seen
    finally:
        torch.nn.functional.linear = linear
        for key, value in saved.items():
            setattr(code, key, value)
    if failed:
        raise failed
    return seen


def token(tensor, t):
    """One head at token t."""
    axis = list(tensor.shape[:-1]).index(TOKENS)
    tensor = tensor.select(axis, t)
    return tensor.reshape(-1, tensor.shape[-1])[0]


def matrices(seen):
    """[tokens, lanes out, lanes in]: the rotation as linear maps of one head."""
    key = next(k for k in seen.arguments.arguments if k in ROTATED)
    width = seen.arguments.arguments[key].shape[-1]
    columns = []
    for lane in range(width):
        for name, value in seen.arguments.arguments.items():
            if name in ROTATED and isinstance(value, torch.Tensor):
                value.zero_()
                if value.shape[-1] == width:
                    value[..., lane] = 1
        out = seen.function(*seen.arguments.args, **seen.arguments.kwargs)
        out = out[0] if isinstance(out, tuple) else out
        columns.append(torch.stack([token(out, t) for t in range(5)]))
    return torch.stack(columns, dim=-1)


@dataclasses.dataclass
class Pair:
    lanes: tuple  # (first, second) of the input
    out: tuple
    angle: list  # on each axis, of a unit of position


@dataclasses.dataclass
class Observed:
    """What a model does with the heads of one kind of layer."""

    head_dim: int
    begin: int  # first lane of the part that the model passes to its rotation
    pairs: list
    amplitude: float
    maps: torch.Tensor
    axes: int


def pairs_of(maps, axes):
    """Every pair that turns. y1 = x1 cos - x2 sin, y2 = x1 sin + x2 cos; other lanes are copied."""
    tokens = (1, 2, 3)[:axes] if axes > 1 else (0,)
    found, taken = [], set()
    for a in range(maps.shape[2]):
        rows = [o for o in range(maps.shape[1]) if maps[0, o, a] != 0 or maps[4, o, a] != 0]
        if a in taken or len(rows) < 2:
            continue
        b = next(b for b in range(maps.shape[2]) if b != a and any(maps[t, rows[0], b] != 0 for t in (0, 4)))
        taken.add(b)
        t = 0 if maps[0, rows[0], b] != 0 else 4
        if maps[t, rows[0], a] * maps[t, rows[1], b] - maps[t, rows[0], b] * maps[t, rows[1], a] < 0:
            rows.reverse()
        angle = [float(torch.atan2(maps[t, rows[1], a], maps[t, rows[0], a])) for t in tokens]
        found.append(Pair((a, b), tuple(rows), angle))
    return found


def observed(seen, at):
    maps = matrices(seen)
    width, axes = maps.shape[1], 1 if at.ndim == 2 and at.shape[0] == 1 else min(at.shape[0] if at.shape[-1] == TOKENS else at.shape[-1], 3)
    head, begin = width, 0
    if seen.query is not None and seen.query.shape[-1] != width:
        query, part = token(seen.query, 0), token(seen.rotated, 0)
        head = len(query)
        # A layer that scales its query afterwards has latent heads, whose last lanes turn.
        begin = next((i for i in range(head - width, -1, -1) if torch.equal(query[i : i + width], part)), head - width)
    pairs = pairs_of(maps, axes)
    first = pairs[0]
    amplitude = float(torch.hypot(maps[0, first.out[0], first.lanes[0]], maps[0, first.out[1], first.lanes[0]]))
    return Observed(head, begin, pairs, amplitude, maps, axes)


def layers_of(config, kind):
    """Layers of that kind; where the rotary embedding has one kind only, the first layer of each."""
    listed = list(attribute(config, "layer_types") or [])
    return [listed.index(kind)] if kind in listed else list(dict.fromkeys([0, *map(listed.index, listed)]))


def attending(module, user, config, kind, at, tables, dtype=torch.float32, index=None):
    """The rotation of a layer of that kind, or of one layer; without a function where none rotates. Raises
    what fails if no layer runs."""
    failures, still = [], None
    for attention in [name for of, name in user.attention if of == module]:
        for layer in layers_of(config, kind) if index is None else [index]:
            try:
                seen = attend(module, attention, config, layer, at, tables, kind, dtype)
            except Exception as error:  # noqa: BLE001  # another class may be the right one
                failures.append(f"{attention}: {error!r}")
                continue
            if seen.function is not None:
                return seen
            still = seen
    if still is None:
        raise RuntimeError("; ".join(failures))
    return still


def rotates(name, fields, index):
    """Whether the attention layer with that number calls its rotation; None where it does not run."""
    user, config = survey()[name], configuration(config_classes()[name], fields)
    for module, rotary_name in user.rotary:
        rotary = rotary_module(module, rotary_name, config)
        at, tables = probe(rotary, kinds_of(rotary)[0])
        try:
            return attending(module, user, config, None, at, tables, index=index).function is not None
        except RuntimeError:
            continue
    return None


def observe(name, fields):
    """Kind of layers -> Observed, or None where such layers do not rotate; what fails raises."""
    user, config = survey()[name], configuration(config_classes()[name], fields)
    failures = []
    for module, rotary_name in user.rotary:
        rotary = rotary_module(module, rotary_name, config)
        found = {}
        for kind in kinds_of(rotary):
            at, tables = probe(rotary, kind)
            try:
                seen = attending(module, user, config, kind, at, tables)
            except RuntimeError as error:
                failures.append(str(error))
                continue
            found[kind] = observed(seen, at) if seen.function is not None else None
        if found:
            return found
    raise RuntimeError(f"{name}: " + "; ".join(failures))
