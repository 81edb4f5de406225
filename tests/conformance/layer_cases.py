# SPDX-License-Identifier: Apache-2.0
"""layer_cases.py: what every layer of small models of transformers rotates by, for models_test.cc.

Models whose layers are not all alike are made whole, with seven layers and random weights, and run. For
each layer this keeps the angle of a unit of position of some pairs, or null where the layer does not
rotate. Every key that says something about single layers gets a file with another value.
"""

import importlib
import inspect
import re
import sys

import torch
import transformers

from by_hand import NEEDED
from case import float32, sample
from upstream import PROBE, ROTATED, ROTATION, Capture, config_classes, configuration, matrices, pairs_of, table_rows

LAYERS = 7
SMALL = {"num_hidden_layers": LAYERS, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64}
SMALL |= {"vocab_size": 64, "max_position_embeddings": 4096, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SMALL |= {"moe_intermediate_size": 32, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2}
# What a class needs to run at that size.
MORE = {
    "diffusion_gemma_text": {"top_k_experts": 2},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "mimo_v2_flash": {"head_dim": 48},
    "mistral_large4_text": {"num_key_value_heads": 4, "head_dim": 64},
    "step3p5": {"sliding_window": 16},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 3 + ["hybrid"]},
    "zaya": {"num_experts_per_tok": 1},
}
PER_LAYER = ("layer_pattern", "kinds_key", "layer_lists", "switch", "no_rope_interval", "layer_codes", "kinds", "still")
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}


def small(cls, given):
    """The fields of SMALL that the class has, what it needs, and those given."""
    needed = NEEDED.get(cls.model_type, {})
    known = vars(configuration(cls, needed)).keys() | inspect.signature(cls.__init__).parameters.keys()
    fields = needed | {k: v for k, v in SMALL.items() if k in known} | MORE.get(cls.model_type, {})
    try:
        configuration(cls, fields)
    except Exception:  # noqa: BLE001  # a list of layers that does not adapt to their number
        kinds = list(dict.fromkeys(configuration(cls, needed).layer_types))
        fields["layer_types"] = [kinds[i % len(kinds)] for i in range(LAYERS)]
    return fields | given


def files(row, cls):
    """Files that say one thing each about single layers."""
    yield "", {}
    switch = row.get("switch")
    if switch:
        yield switch["key"], {switch["key"]: False if switch["value"] is True else "absolute"}
    types = getattr(configuration(cls, small(cls, {})), "layer_types", None)
    if types and len(set(types)) > 1:
        yield "layer_types", {"layer_types": [*types[1:], types[0]]}
    for key in (*row.get("period_keys", []), *row.get("pattern_keys", [])):
        yield key, {key: 2}
    if "layer_rope_theta" in row.get("layer_lists", []):
        yield "layer_rope_theta", {"layer_rope_theta": [10000.0, 0.0, 23456.0, 10000.0, 0.0, 500000.0, 0.0]}
    if "rope_scaling_layers" in row.get("layer_lists", []):
        yield "rope_scaling_layers", {"rope_scaling_layers": [1, 4], "rope_scaling": LINEAR}
    if "no_rope_interval" in row:
        yield "no_rope_layers", {"no_rope_layers": [1, 0, 0, 1, 1, 0, 1]}
        yield "no_rope_layer_interval", {"no_rope_layer_interval": 2}
    if "attention_list" in row:
        yield row["attention_list"], {row["attention_list"]: [1, 5]}
    if "layer_codes" in row:
        yield row["layer_codes"]["key"], {row["layer_codes"]["key"]: (row["layer_codes"]["numbers"] * LAYERS)[:LAYERS]}


def model_class(cls):
    """The class of the package that makes all layers from that configuration."""
    module = importlib.import_module(cls.__module__.replace(".configuration_", ".modeling_"))
    found = [c for n, c in vars(module).items() if re.search(r"(?<!PreTrained)Model$", n) and inspect.isclass(c) and c.__module__ == module.__name__]
    takes = [c for c in found if inspect.signature(c.__init__).parameters.get("config") and getattr(c, "config_class", None) in (cls, None)]
    named = [c for c in takes if cls.__name__ in str(inspect.signature(c.__init__).parameters["config"].annotation)]
    return (named or [transformers.MODEL_MAPPING[cls]])[0]


def run(cls, fields):
    """Per layer: its first rotation, or None."""
    torch.manual_seed(0)
    model = model_class(cls)(configuration(cls, fields)).eval()
    layers = next(m for n, m in model.named_modules() if isinstance(m, torch.nn.ModuleList) and len(m) == LAYERS and n.endswith("layers"))
    code = sys.modules[type(model).__module__]
    seen, now = [None] * LAYERS, [None]

    def watched(function):
        def replaced(*arguments, **named):
            bound = inspect.signature(function).bind(*arguments, **named)
            heads = [k for k, v in bound.arguments.items() if k in ROTATED and isinstance(v, torch.Tensor) and len(PROBE) in v.shape[:-1]]
            if now[0] is not None and seen[now[0]] is None and heads:
                kept = inspect.signature(function).bind(*arguments, **named)
                for key in heads:
                    kept.arguments[key] = kept.arguments[key].detach().clone()
                seen[now[0]] = Capture(function, kept)
            return function(*arguments, **named)

        return replaced

    saved = {k: v for k, v in vars(code).items() if inspect.isfunction(v) and v.__module__ == code.__name__ and ROTATION.match(k)}
    if not saved:
        raise RuntimeError("no function rotates")
    for i, layer in enumerate(layers):
        layer.register_forward_pre_hook(lambda *_, i=i: now.__setitem__(0, i))
    try:
        for key, value in saved.items():
            setattr(code, key, watched(value))
        with torch.no_grad():
            at = torch.tensor([[p[0] for p in PROBE]])
            takes = inspect.signature(model.forward).parameters
            model(input_ids=torch.ones(1, len(PROBE), dtype=torch.long), position_ids=at, **({"use_cache": False} if "use_cache" in takes else {}))
    finally:
        for key, value in saved.items():
            setattr(code, key, value)
    return seen


def layer_of(seen):
    if seen is None:
        return None
    maps = matrices(seen)
    pairs = pairs_of(maps, 1)
    chosen = sample(len(pairs), 4, [])
    lane, (one, other) = pairs[0].lanes[0], pairs[0].out
    amplitude = float(torch.hypot(maps[0, one, lane], maps[0, other, lane]))
    return {"pairs": len(pairs), "pair": chosen, "angle": [float32(pairs[j].angle[0]) for j in chosen], "amplitude": float32(amplitude)}


def case_of(cls, tag, given):
    fields = small(cls, given)
    case = {"name": f"{cls.model_type} {tag}".strip(), "config": {"model_type": cls.model_type} | fields}
    try:
        case["layers"] = [layer_of(seen) for seen in run(cls, fields)]
    except Exception as error:  # noqa: BLE001  # named, so that the sum is true
        case["failure"] = f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
    print(case["name"], case.get("failure", ""), file=sys.stderr, flush=True)
    return case


def cases_of(name):
    cls = config_classes()[name]
    row = table_rows().get(cls.model_type, {"unread": ""})
    told = "unread" not in row and row.keys() & set(PER_LAYER)
    return [case_of(cls, tag, given) for tag, given in files(row, cls)] if told else []
