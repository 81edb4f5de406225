# SPDX-License-Identifier: Apache-2.0
"""A case: a spec, what an upstream package computes for it, and the file that holds both."""

import dataclasses
import json
import multiprocessing
import pathlib
from typing import Callable

import numpy as np
from mpmath import mp, mpf

from facts import facts, table_columns

ROOT = pathlib.Path(__file__).parent
GOLDEN = ROOT / "golden"
PRESETS = {preset["name"]: preset for preset in json.loads((ROOT.parents[1] / "kernels" / "spec" / "presets.json").read_text())}
for preset in PRESETS.values():
    preset["spec"].pop("parity", None)  # what upstream rounds is no part of what a spec means
ROTARY, ENCODING = "SPEC_KIND_ROTARY", "SPEC_KIND_ENCODING"

MOST_FREQUENCIES = 96  # written in full; more are sampled
MOST_SAMPLES = 6  # pairs or columns whose sines and cosines are written


@dataclasses.dataclass
class Case:
    name: str
    spec: dict  # without a base
    positions: list  # numbers, or one list of numbers per axis
    upstream: str  # package, function or class
    arithmetic: str  # the steps that upstream rounds
    # positions -> cosines and sines [positions, pairs], amplitude included; encodings: rows [positions, dim].
    compute: Callable
    preset: str = ""
    given: dict = dataclasses.field(default_factory=dict)  # what is set beside the preset
    # [positions, head_dim] in f32 -> the same, rotated at `positions`; or one such function per dtype
    rotate: Callable | dict = None
    # Upstream's frequencies, [pairs], asked for after `compute`.
    frequencies: Callable = None
    # Tables instead of rotations: an EncodeOutput without its prefix; `compute` then returns rows.
    output: str = ""
    # Relative error of upstream's frequencies.
    tolerance: float = 2.0**-21


def of_each(function, names):
    """function(name) for every name, in their order, computed on all cores."""
    with multiprocessing.get_context("fork").Pool() as pool:
        yield from pool.imap(function, names)


def preset_case(name, positions, compute, arithmetic, given=None, rotate=None, upstream=None, **more):
    preset = PRESETS[name]
    spec = preset["spec"] | (given or {})
    return Case(name, spec, positions, upstream or preset["source"], arithmetic, compute, name, given or {}, rotate, **more)


def rows(positions):
    return [list(p) if isinstance(p, (list, tuple)) else [p] for p in positions]


def input_lanes(width):
    """A vector whose lanes all differ and are exact in every float type but FP8."""
    return np.array([(i * 37 % 101 - 50) / 16 for i in range(width)], np.float32)


def sample(count, most, keep=()):
    """`most` indices spread over [0, count), the ends and `keep` among them."""
    if count <= most:
        return list(range(count))
    spread = {round(i * (count - 1) / (most - 1)) for i in range(most)}
    return sorted(spread | {k for k in keep if k < count})


def digits(x, n):
    return mp.nstr(x, n, strip_zeros=True, min_fixed=-6, max_fixed=8) if x else "0"


def float32(x):
    return float(f"{np.float32(x):.9g}")


def check(case, found, at, got, want, angle):
    """Upstream rounds frequency, angle and result to f32, so it may be off by as much, and not by more."""
    amplitude = max(1.0, float(abs(found.factor)))
    bound = amplitude * (2.0**-22 + (case.tolerance + 2.0**-23) * float(abs(angle)))
    difference = abs(float(got) - float(want))
    if not difference <= min(bound, 2.1 * amplitude):
        raise AssertionError(f"{case.name}: {at}: upstream {got}, formula {float(want)}, apart {difference}, bound {bound}")
    return difference


def rotated(case, found, rotate, dtype):
    """Upstream's rotation of input_lanes at the second and last-but-one position; every position is checked."""
    spec = case.spec
    head = spec["head_dim"]
    got = np.asarray(rotate(np.tile(input_lanes(head), (len(case.positions), 1))), np.float64)
    begin = spec.get("rotary_begin", 0)
    n = (spec.get("rotary_dim") or int(head * spec.get("partial_rotary_factor", 1))) // 2
    x = input_lanes(head)
    lane = {"PAIRING_HALF_SPLIT": lambda j, k: begin + j + k * n, "PAIRING_INTERLEAVED": lambda j, k: begin + 2 * j + k}
    halves = [(begin + sum(spec["axes_dim"][:a]) + i, width // 2) for a, width in enumerate(spec.get("axes_dim", [])) for i in range(width // 2)]
    lane["PAIRING_BLOCK_HALF_SPLIT"] = lambda j, k: halves[j][0] + k * halves[j][1]
    source, target = lane[spec["pairing"]], lane[spec.get("pairing_out", spec["pairing"])]
    epsilon = {"f32": 2.0**-20, "bf16": 2.0**-7}[dtype]
    for i, position in enumerate(rows(case.positions)):
        want = [mpf(float(v)) for v in x]
        for j in range(n):
            a, b = float(x[source(j, 0)]), float(x[source(j, 1)])
            c, s = found.cos(position, j), found.sin(position, j)
            want[target(j, 0)], want[target(j, 1)] = a * c - b * s, b * c + a * s
        largest = max(abs(found.angle(position, j)) for j in range(n))
        bound = 8 * (epsilon + 2 * (case.tolerance + 2.0**-23) * float(largest)) * float(max(1, found.amplitude(position, 0)))
        for at in range(head):
            if abs(got[i, at] - float(want[at])) > min(bound, 40):
                raise AssertionError(f"{case.name}: position {position} lane {at}: upstream rotates to {got[i, at]}, formula {want[at]}")
    keep = sorted({1, len(case.positions) - 2})
    lanes = sample(head, 32)
    return {"positions": keep, "lanes": lanes, "values": [[float32(got[i, at]) for at in lanes] for i in keep]}


def terms(column):
    return [int(term.lstrip("-sc")) for term in column.split("+") if term != "0"]


def rotary_samples(case, found, positions, boundaries):
    pairs = sample(found.pairs, MOST_SAMPLES, boundaries[:3])
    cos, sin = (np.asarray(t, np.float64) for t in case.compute(case.positions))
    assert cos.shape == sin.shape == (len(positions), found.pairs), (case.name, cos.shape, found.pairs)
    worst = 0.0
    for i, p in enumerate(positions):
        for j in range(found.pairs):
            angle = found.angle(p, j)
            worst = max(worst, check(case, found, (p, j, "cos"), cos[i, j], found.cos(p, j), angle))
            worst = max(worst, check(case, found, (p, j, "sin"), sin[i, j], found.sin(p, j), angle))
    out = {"samples": pairs}
    out |= {"cos": [[digits(found.cos(p, j), 19) for j in pairs] for p in positions]}
    out |= {"sin": [[digits(found.sin(p, j), 19) for j in pairs] for p in positions]}
    out |= {"upstream_cos": [[float32(v) for v in row[pairs]] for row in cos]}
    out |= {"upstream_sin": [[float32(v) for v in row[pairs]] for row in sin]}
    for dtype, rotate in case.rotate.items() if isinstance(case.rotate, dict) else {"f32": case.rotate}.items():
        if rotate:
            out |= {f"upstream_rotated_{dtype}": rotated(case, found, rotate, dtype)}
    return out, worst


def row_samples(case, found, positions):
    """Encodings and tables."""
    got = np.asarray(case.compute(case.positions), np.float64)
    width = len(found.columns)
    assert got.shape == (len(positions), width), (case.name, got.shape, width)
    edges = [c for c in range(width) if found.columns[c] == "0"][:2] + [0, 1, 2, width // 2, width - 1]
    columns = sample(width, width if case.output else MOST_SAMPLES, edges)
    worst = 0.0
    for i, p in enumerate(positions):
        for c in range(width):
            angle = max((abs(found.angle(p, j)) for j in terms(found.columns[c])), default=0)
            worst = max(worst, check(case, found, (p, c), got[i, c], found.column(p, c), angle))
    out = {"columns": found.columns if width <= 256 else [], "samples": columns}
    out |= {"values": [[digits(found.column(p, c), 19) for c in columns] for p in positions]}
    out |= {"upstream_values": [[float32(row[c]) for c in columns] for row in got]}
    return out, worst


def record(case):
    """The case as it is kept: facts from the formula, samples of the truth and of upstream's result."""
    spec = case.spec
    found = facts(spec)
    if case.output:
        found.columns = table_columns(case.output, found.pairs)
    positions = rows(case.positions)
    boundaries = [j for j in range(1, found.pairs) if found.axis and found.axis[j] != found.axis[j - 1]]
    kept = sample(found.pairs, MOST_FREQUENCIES, boundaries[:4])
    out = {"name": case.name, "preset": case.preset, "given": case.given, "spec": spec, "output": case.output}
    out |= {"upstream": case.upstream, "arithmetic": case.arithmetic, "positions": positions}
    out |= {"pairs": found.pairs, "frequency_pairs": kept}
    if found.axis:
        out |= {"inv_freq": [digits(found.inv_freq[j], 30) for j in kept], "axis": [found.axis[j] for j in kept]}
    else:
        out |= {"inv_freq": [[digits(f[j], 30) for j in kept] for f in found.inv_freq], "axis": []}
    out |= {"attention_factor": digits(found.factor, 35)}
    if found.phase:
        out |= {"phase": [digits(found.phase[j], 30) for j in kept]}
    if found.columns:
        samples, worst = row_samples(case, found, positions)
    else:
        samples, worst = rotary_samples(case, found, positions, boundaries)
    if case.frequencies:
        own = case.frequencies()
        for j in range(found.pairs):
            assert abs(float(own[j]) - float(found.inv_freq[j])) <= case.tolerance * float(found.inv_freq[j]), (case.name, j)
        out |= {"upstream_inv_freq": [float32(own[j]) for j in kept]}
    return out | samples | {"upstream_error": float(f"{worst:.3g}")}


def write(path, records):
    """One case a line, so that a changed case is a changed line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(r, separators=(",", ":")) for r in records)
    path.write_text(f"[\n{lines}\n]\n")
