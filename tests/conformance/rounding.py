# SPDX-License-Identifier: Apache-2.0
"""rounding.py: finds in which types a model's own code rounds, for PRECISION_PARITY.

The attention layer runs in bfloat16 and in float16, at positions in the thousands. What it passed to
its rotation is replaced by random numbers of the same types. The result must have the bits of one of
STEPS, in both types; and the frequencies those of 1 / pow(theta, j / n) in float32.
"""

import torch

import upstream
from upstream import attending, config_classes, configuration, frequencies, probe, rotary_module, survey, token

# The types of sines and cosines, and of products and sums; None: the model's.
STEPS = {("MODEL", "MODEL"): (None, None), ("MODEL", "FLOAT32"): (None, torch.float32), ("FLOAT32", "FLOAT32"): (torch.float32, torch.float32)}
STEPS |= {("FLOAT32", "MODEL"): (torch.float32, None), ("FLOAT32", "FLOAT64"): (torch.float32, torch.float64), ("FLOAT64", "FLOAT64"): (torch.float64, torch.float64)}
FAR = 1777  # times the probe's positions


def by_pow(inv_freq, theta):
    """In any order: some modules keep the frequencies of each axis together."""
    d = 2 * len(inv_freq)
    return torch.equal(torch.tensor(sorted(inv_freq, reverse=True)), 1.0 / (theta ** (torch.arange(0, d, 2).float() / d)))


def captured(name, config, kind, dtype):
    """What the layer gave to its rotation in that type, at far positions, or None."""
    user = survey()[name]
    near, upstream.PROBE = upstream.PROBE, tuple(tuple(FAR * c for c in at) for at in upstream.PROBE)
    try:
        for module, rotary_name in user.rotary:
            rotary = rotary_module(module, rotary_name, config)
            at, tables = probe(rotary, kind, dtype)
            try:
                seen = attending(module, user, config, kind, at, tables, dtype)
            except RuntimeError:
                continue
            if seen.function is not None:
                return seen, rotary
    finally:
        upstream.PROBE = near
    return None


def rotated(seen, dtype):
    """Random heads at five tokens before and after the rotation, [tokens, lanes]."""
    generator = torch.Generator().manual_seed(1)
    for key, value in seen.arguments.arguments.items():
        if key in upstream.ROTATED and isinstance(value, torch.Tensor):
            drawn = torch.randn(value.shape, generator=generator).to(dtype).to(value.dtype)
            seen.arguments.arguments[key] = drawn
    first = next(k for k in seen.arguments.arguments if k in upstream.ROTATED)
    x = torch.stack([token(seen.arguments.arguments[first].clone(), t) for t in range(5)])
    out = seen.function(*seen.arguments.args, **seen.arguments.kwargs)
    out = out[0] if isinstance(out, tuple) else out
    return x.to(dtype), torch.stack([token(out, t) for t in range(5)]).to(dtype)


def agrees(observed, inv_freq, amplitude, x, y, dtype, steps):
    table, math = (step or dtype for step in steps)
    in_order = len(inv_freq) == len(observed.pairs) and inv_freq == sorted(inv_freq, reverse=True)
    for j, pair in enumerate(observed.pairs):
        axis = max(range(observed.axes), key=lambda a: abs(pair.angle[a]))
        near = min(inv_freq, key=lambda f: abs(f - abs(pair.angle[axis])))
        frequency = inv_freq[j] if in_order else near
        at = torch.tensor([FAR * probe[axis] for probe in upstream.PROBE[:5]]).float()
        angle = at * torch.tensor(frequency)
        angle = angle.double() if table == torch.float64 else angle
        sign = -1 if pair.angle[axis] < 0 else 1
        cos, sin = ((part * amplitude).to(table).to(math) for part in (angle.cos(), sign * angle.sin()))
        x1, x2 = (x[:, lane].to(math) for lane in pair.lanes)
        for got, want in ((y[:, pair.out[0]], x1 * cos - x2 * sin), (y[:, pair.out[1]], x2 * cos + x1 * sin)):
            if not torch.equal(got, want.to(dtype)):
                return False
    return True


def rounding(name, fields, kinds, observed):
    """["FLOAT32_POW", "FLOAT32", table, math]; None where no such steps give the bits. `kinds`: rows of the
    table; `observed`: of upstream.observe."""
    config = configuration(config_classes()[name], fields)
    left = list(STEPS)
    for row in kinds:
        kind = row.get("name") or None
        if observed.get(row.get("name", "")) is None:
            return None
        for dtype in (torch.bfloat16, torch.float16):
            found = captured(name, config, kind, dtype)
            if found is None:
                return None
            seen, rotary = found
            values = frequencies(rotary)
            inv_freq = values.get(f"{kind}_inv_freq" if kind else "inv_freq")
            if not inv_freq or ("rope" not in row and not by_pow(inv_freq, row["theta"])):
                return None
            amplitude = values.get(f"{kind}_attention_scaling" if kind else "attention_scaling", 1.0)
            x, y = rotated(seen, dtype)
            left = [step for step in left if agrees(observed[row.get("name", "")], inv_freq, amplitude, x, y, dtype, STEPS[step])]
    return ["FLOAT32_POW", "FLOAT32", *left[0]] if left else None
