# SPDX-License-Identifier: Apache-2.0
"""model_parity.py: what the attention layers of transformers' models rotate to in bfloat16,
float16 and float32, for model_parity_test.cc.

Every attention layer that runs alone is made in that type, with zero weights. What it passes to its
rotation is replaced by numbers that all three types hold exactly. Two of the positions are beyond
the model's context.
"""

import sys

import torch

import upstream
from case import sample
from models import Model, axis_names
from upstream import ROTATED, attending, attribute, config_classes, frequencies, kinds_of, probe, rotary_module, survey, table_rows, token

TYPES = {"BFLOAT16": torch.bfloat16, "FLOAT16": torch.float16, "FLOAT32": torch.float32}
TOKENS = (0, 4)  # of the probe: beyond the context, and twice as far
STILL = 5  # at position 0, where no model scales its queries
MOST_LANES = 16
LONGEST = 1 << 20


def lanes_of(width):
    """model_parity_test.cc has the same."""
    return torch.tensor([(i * 37 % 101 - 50) / 16 for i in range(width)])


def captured(model, config, kind, dtype):
    """What the layer gave to its rotation; what fails raises."""
    rotary = rotary_module(model.module, model.rotary, config)
    at, tables = probe(rotary, kind, dtype)
    seen = attending(model.module, survey()[type(config).__name__], config, kind, at, tables, dtype)
    if seen.function is None:
        raise RuntimeError("no attention layer rotates")
    return seen, at, rotary


def place(seen):
    """(head_dim, first lane that the layer passes to its rotation)"""
    width = seen.rotated.shape[-1]
    if seen.query is None or seen.query.shape[-1] == width:
        return width, 0
    query, part = token(seen.query, STILL), token(seen.rotated, STILL)
    return len(query), next((i for i in range(len(query) - width, -1, -1) if torch.equal(query[i : i + width], part)), len(query) - width)


def rotated(seen, begin):
    """Rows of TOKENS, after the rotation of lanes_of."""
    for key, value in seen.arguments.arguments.items():
        if key in ROTATED and isinstance(value, torch.Tensor):
            seen.arguments.arguments[key] = lanes_of(begin + value.shape[-1])[begin:].to(value.dtype).expand(value.shape).clone()
    out = seen.function(*seen.arguments.args, **seen.arguments.kwargs)
    out = out[0] if isinstance(out, tuple) else out
    return [token(out, t) for t in TOKENS]


def numbers(values, dtype):
    return [float(f"{v:.9g}") for v in values.to(dtype).double().tolist()]


def cases_of_row(name, row):
    model = Model(name)
    config = model.config({})
    context = attribute(config, "max_position_embeddings")
    far = (context if isinstance(context, int) and 0 < context <= LONGEST else 4096) + 1
    near, upstream.PROBE = upstream.PROBE, tuple(tuple(far * c for c in at) for at in upstream.PROBE)
    try:
        for kind in kinds_of(rotary_module(model.module, model.rotary, config)):
            for tag, dtype in TYPES.items():
                seen, at, rotary = captured(model, config, kind, dtype)
                head, begin = place(seen)
                axes = 1 if at.ndim == 2 and at.shape[0] == 1 else min(at.shape[0] if at.shape[-1] == upstream.TOKENS else at.shape[-1], 3)
                names = axis_names(row["model_type"], axes)
                order = [names.index(a) for a in row["axes"]] if row.get("axes") else list(range(axes))
                lanes = sample(seen.rotated.shape[-1], MOST_LANES, [])
                out = {"name": f"{row['model_type']} {kind or ''}".strip(), "config": {"model_type": row["model_type"]} | model.needed, "kind": kind or ""}
                if tag == "BFLOAT16":  # the same for all types
                    out |= {"inv_freq": numbers(torch.tensor(frequencies(rotary)[f"{kind}_inv_freq" if kind else "inv_freq"]), torch.float32)}
                out |= {"dtype": tag, "head_dim": head, "positions": [[upstream.PROBE[t][a] for a in order] for t in TOKENS]}
                yield out | {"lanes": [begin + i for i in lanes], "rotated": [numbers(r[lanes], dtype) for r in rotated(seen, begin)]}
    finally:
        upstream.PROBE = near


def cases_of(name):
    row, found = table_rows().get(config_classes()[name].model_type, {}), []
    if row.get("observed") != "attention layer":
        return found
    try:
        found += cases_of_row(name, row)
    except Exception as error:  # noqa: BLE001  # named, so that the sum is true
        found.append({"name": row["model_type"], "failure": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"})
    print(row["model_type"], file=sys.stderr, flush=True)
    return found
