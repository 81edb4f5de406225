# SPDX-License-Identifier: Apache-2.0
"""model_cases.py: computes configurations of every model_type with transformers, for models_test.cc.

Per model_type and kind of layers: the file that says nothing, run through the model's attention
layer; the file that transformers saves; and, live only, one file per key that a class might read,
with a changed value, and files that say several things at once. What frequencies do not show
(widths before the lanes that rotate, pairings, axes) goes through the attention layer too. A case
has what upstream computes: the angle of a unit of position of some pairs, and of the first a
rotated head.
"""

import json
import random
import sys

import torch

from case import float32, input_lanes, sample
from models import BASE, BASES, HEADS, HIDDEN, LINEAR, PARTIAL, THETA, WIDTH, Model, widths
from upstream import config_classes, observe, table_rows

MOST_PAIRS, MOST_LANES = 12, 24
SEVERAL = 30  # files of several keys for each class
POSITION = [2, 3, 5]  # that of upstream.PROBE's fifth token


def live(model, row, name, fields, tag):
    """A file through the attention layer; nothing where upstream refuses it."""
    try:
        found = observe(name, model.needed | fields)
    except Exception:  # noqa: BLE001  # whatever it raises is a refusal
        found = {}
    for kind, seen in found.items():
        if seen is None:
            continue
        chosen = sample(len(seen.pairs), MOST_PAIRS, [1, 2, 3])
        axis = [max(range(seen.axes), key=lambda a: abs(p.angle[a])) for p in seen.pairs]
        order = list(dict.fromkeys(axis)) if row.get("axes") else list(range(seen.axes))
        part = seen.maps[4].double() @ torch.from_numpy(input_lanes(seen.head_dim)[seen.begin : seen.begin + seen.maps.shape[1]]).double()
        whole = torch.from_numpy(input_lanes(seen.head_dim)).double()
        whole[seen.begin : seen.begin + len(part)] = part
        lanes = sample(seen.head_dim, MOST_LANES, [seen.begin, seen.begin + 1])
        config = {"model_type": model.cls.model_type} | model.needed | fields
        out = {"name": " ".join(filter(None, (model.cls.model_type, kind, tag))), "config": config, "kind": kind or ""}
        out |= {"head_dim": seen.head_dim, "pairs": len(seen.pairs), "pair": chosen, "axis": [order.index(axis[j]) for j in chosen]}
        out |= {"angle": [float32(seen.pairs[j].angle[axis[j]]) for j in chosen], "amplitude": float32(seen.amplitude)}
        out |= {"position": [POSITION[a] for a in order], "lanes": lanes, "rotated": [float(f"{float(whole[i]):.6g}") for i in lanes]}
        yield out


def frequencies_of(model, row, fields, tag):
    """What the rotary embedding computes for a file, per kind of layers; nothing where upstream refuses."""
    found = model.ask(fields)
    if found is None:
        return
    sign = -1 if row.get("backwards") else 1
    for kind in [k["name"] for k in row.get("kinds", [{"name": ""}])]:
        values = found.get(f"{kind}_inv_freq" if kind else "inv_freq")
        latent = next((k.get("latent") for k in row.get("kinds", [row]) if k.get("name", "") == kind), None)
        if not values or (latent and 2 * len(values) != fields.get("qk_rope_head_dim", latent[1])):
            continue  # upstream's own attention layer could not rotate that many lanes
        if row.get("axis_rule") == "MROPE_ALTERNATING":
            values = sorted(values, reverse=True)  # kept axis by axis
        live_pairs = sum(v != 0 for v in values)
        chosen = sample(live_pairs, 4, [])
        out = {"name": f"{row['model_type']} {kind} {tag}".replace("  ", " "), "config": {"model_type": row["model_type"]} | model.needed | fields, "kind": kind}
        out |= {"pairs": live_pairs, "pair": chosen, "angle": [float32(sign * values[j]) for j in chosen]}
        yield out | {"amplitude": float32(found.get(f"{kind}_attention_scaling" if kind else "attention_scaling", 1.0))}


def keys_of(model):
    """Files that say one thing each."""
    yield from (({key: base}, key) for key in THETA for base in BASES)
    yield from (({key: 16 if key == "rotary_dim" else 0.5}, key) for key in PARTIAL)
    yield from (({key: width}, key) for key in (*WIDTH, "qk_rope_head_dim") for width in widths(model, key))
    yield from (({key: model.integer(key) * 2}, key) for key in HIDDEN if model.integer(key))
    yield from (({key: max(1, model.integer(key) // 2)}, key) for key in HEADS if model.integer(key))
    yield {"rope_scaling": LINEAR}, "rope_scaling"
    yield {"rope_scaling": LINEAR, "rope_theta": BASE}, "rope_scaling and rope_theta"
    yield {"rope_scaling": LINEAR | {"rope_theta": BASE}}, "a base in rope_scaling"
    yield {"rope_parameters": LINEAR | {"rope_theta": BASE}}, "rope_parameters"
    yield {"rope_parameters": {"rope_type": "default", "rope_theta": BASE, "partial_rotary_factor": 0.5}}, "a share in rope_parameters"
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    yield {"rope_scaling": yarn, "max_position_embeddings": 4096}, "yarn"
    yield {"head_dim": None}, "head_dim of null"
    yield {"layer_types": ["full_attention"] * (model.integer("num_hidden_layers") or 2)}, "full attention only"


SCALINGS = [
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 512, "beta_fast": 16, "beta_slow": 2},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024},
    {"rope_type": "dynamic", "factor": 2.0},
    {"type": "dynamic", "factor": 2.0},
    {"type": "linear", "factor": 4.0},
    LINEAR,
    None,
]


def files_of_several_keys(model, row):
    """Files that say several things at once: keys that the class reads, and scalings, drawn at random."""
    random_keys = random.Random(row["model_type"])
    names = {kind: [k for part in row.get("kinds", [row]) for k in part.get(f"{kind}_keys", [])] for kind in ("theta", "partial", "head_dim", "hidden", "heads")}
    values = {key: BASES for key in names["theta"]} | {"max_position_embeddings": (2048, 4096), "rope_theta": BASES}
    values |= {key: (0.5, 0.25) if key != "rotary_dim" else (16, 32) for key in names["partial"] or ["partial_rotary_factor"]}
    values |= {key: widths(model, key) for key in names["head_dim"]}
    values |= {key: (model.integer(key) * 2,) for key in names["hidden"] if model.integer(key)}
    values |= {key: (max(1, model.integer(key) // 2),) for key in names["heads"] if model.integer(key)}
    for _ in range(SEVERAL):
        fields = {key: random_keys.choice(values[key]) for key in random_keys.sample(sorted(values), min(len(values), random_keys.randint(1, 3)))}
        scaling = random_keys.choice(SCALINGS)
        if scaling is not None:
            own = {"rope_theta": 5e5} if random_keys.random() < 0.5 else {}
            own |= {"partial_rotary_factor": 0.5} if random_keys.random() < 0.25 else {}
            fields[random_keys.choice(("rope_scaling", "rope_parameters"))] = scaling | own
        yield fields, json.dumps(fields)


def keys_of_layers(model, row):
    """Files that say one thing each which only the attention layer shows."""
    kinds = row.get("kinds", [row])
    if row.get("axes"):
        yield {}, "silent"
        for kind in kinds:
            yield from (({key: BASE}, key) for key in kind.get("theta_keys", []))
            yield from (({key: (model.integer(key) or 128) + 32}, key) for key in kind.get("head_dim_keys", []))
            yield from (({key: model.integer(key) * 2}, key) for key in kind.get("hidden_keys", []) if model.integer(key))
            yield from (({key: max(1, model.integer(key) // 2)}, key) for key in kind.get("heads_keys", []) if model.integer(key))
        yield {"rope_parameters": {"rope_type": "default", "rope_theta": BASE}}, "rope_parameters"
    if section := row.get("mrope_section"):
        moved = [section[0] - 2, section[1] - 2, section[2] + 4] if section[0] == section[1] else [section[0] - 2, section[1], section[2] + 2]
        yield {"rope_scaling": {"rope_type": "default", "mrope_section": moved}}, "mrope_section"
    if kinds[0].get("latent"):
        yield from (({key: width + 16}, key) for key, width in zip(("qk_nope_head_dim", "qk_rope_head_dim"), kinds[0]["latent"], strict=True))
    if row.get("rope_interleave"):
        yield {"rope_interleave": False}, "rope_interleave"


def cases_of(name, row, everything):
    model = Model(name)
    print(model.cls.model_type, file=sys.stderr, flush=True)
    if row["observed"] == "attention layer":
        yield from live(model, row, name, {}, "")
    else:
        yield from frequencies_of(model, row, {}, "silent")
    if everything and row["observed"] == "attention layer":
        for fields, tag in keys_of_layers(model, row):
            yield from live(model, row, name, fields, tag)
    if row.get("axes") or (row.get("axis_rule") and not everything):
        return
    saved = {k: v for k, v in model.config({}).to_diff_dict().items() if "Infinity" not in json.dumps(v, default=str)}
    saved = json.loads(json.dumps(saved, default=str))
    yield from frequencies_of(model, row, {k: v for k, v in saved.items() if k not in ("model_type", "transformers_version")}, "saved")
    if everything:
        for fields, tag in (*keys_of(model), *files_of_several_keys(model, row)):
            yield from frequencies_of(model, row, fields, tag)


def stored_cases(name, everything=False):
    row = table_rows().get(config_classes()[name].model_type, {"unread": ""})
    return [] if "unread" in row else list(cases_of(name, row, everything))


def all_cases(name):
    return stored_cases(name, everything=True)
