# SPDX-License-Identifier: Apache-2.0
"""Computes what a spec means in 300-bit arithmetic: frequencies, amplitude, axes and the layout of
an encoding's columns.

This is a second implementation of docs/conventions.md, from the formulas and without any code of
Phasor. generate.py compares it with the upstream packages, and conformance_test.cc compares Phasor
with it. `spec` is phasor.v1.Spec in JSON, with the names of spec.proto and without a preset.
"""

import dataclasses

from mpmath import mp, mpf

mp.prec = 300


@dataclasses.dataclass
class Facts:
    inv_freq: list  # radians per unit position, one per pair; DENSE: one list per axis
    axis: list  # of each pair; DENSE: empty
    factor: mpf  # multiplies sine and cosine
    phase: list  # radians, one per pair; empty: zeros
    pairs: int
    columns: list  # of encodings and tables: what each is, "s3", "c3", "-s3", "s3+s7", "0"
    cos_bias: mpf
    xpos: dict

    def angle(self, position, pair):
        """`position`: one number per axis."""
        if self.axis:
            angle = mpf(position[self.axis[pair]]) * self.inv_freq[pair]
        else:
            angle = sum(mpf(p) * frequencies[pair] for p, frequencies in zip(position, self.inv_freq))
        return angle + (self.phase[pair] if self.phase else 0)

    def amplitude(self, position, pair):
        if not self.xpos:
            return self.factor
        d = 2 * self.pairs
        zeta = (2 * pair + mpf("0.4") * d) / (mpf("1.4") * d)
        power = (mpf(position[0]) - mpf(self.xpos.get("center", 0))) / mpf(self.xpos.get("scale_base", 512))
        return self.factor * zeta ** (-power if self.xpos.get("inverse") else power)

    def cos(self, position, pair):
        return self.amplitude(position, pair) * mp.cos(self.angle(position, pair))

    def sin(self, position, pair):
        return self.amplitude(position, pair) * mp.sin(self.angle(position, pair))

    def column(self, position, column):
        total = mpf(0)
        for term in self.columns[column].split("+"):
            if term[0] == "s":
                total += self.sin(position, int(term[1:]))
            elif term[0] == "-":
                total -= self.sin(position, int(term[2:]))
            elif term[0] == "c":
                total += self.cos(position, int(term[1:])) + self.cos_bias
        return total


def ladder(spec, n, axis, width=None):
    """The n frequencies of one axis; `width` is 2n, or an odd width that is split."""
    family = spec.get("family", "FREQUENCY_FAMILY_GEOMETRIC").removeprefix("FREQUENCY_FAMILY_")
    shift = mpf(spec.get("downscale_freq_shift", 0))
    unit = 2 * mp.pi if spec.get("frequency_unit") == "FREQUENCY_UNIT_TURNS" else mpf(1)
    if family in ("GEOMETRIC", "PER_ELEMENT"):
        theta = mpf(spec["axes_theta"][axis] if "axes_theta" in spec else spec["rope_theta"])
        denominator = mpf(width or 2 * n) / 2 - shift if n > 1 else mpf(1)
        return [theta ** (-j / denominator) for j in range(n)]
    if family in ("PERIODS", "PERIODS_EXCLUSIVE"):
        low, high = mpf(spec["min_period"]), mpf(spec["max_period"])
        denominator = max(n - 1, 1) if family == "PERIODS" else n
        return [2 * mp.pi / (low * (high / low) ** (mpf(j) / denominator)) for j in range(n)]
    if family == "EXPLICIT":
        return [unit * mpf(f) for f in spec["inv_freq"][axis * n : (axis + 1) * n]]
    low, high = mpf(spec["min_freq"]), mpf(spec["max_freq"])
    if family == "LINEAR":
        return [unit * (low + (high - low) * j / max(n - 1, 1)) for j in range(n)]
    if family == "LOG_RANGE":
        return [unit * low * (high / low) ** (j / (n - shift)) for j in range(n)]
    raise ValueError(f"unknown family {family}")


# --- scalings for longer contexts: (frequencies, amplitude) from frequencies ----------------------


def linear(frequencies, rule, **_):
    return [f / mpf(rule["factor"]) for f in frequencies], mpf(1)


def ntk(frequencies, rule, spec, d):
    factor = mpf(rule["factor"])
    if rule.get("dynamic"):
        original = rule["original_max_position_embeddings"]
        length = max(spec["sequence_length"], original)
        factor = factor * length / original - (factor - 1)
    scaled = dict(spec, rope_theta=mpf(spec["rope_theta"]) * factor ** (mpf(d) / (d - 2)))
    return ladder(scaled, len(frequencies), 0), mpf(1)


def mixed_ntk(frequencies, rule, spec, d):
    factor = mpf(rule["factor"])
    n = len(frequencies)
    if "b" not in rule:
        scaled = ladder(dict(spec, rope_theta=mpf(spec["rope_theta"]) * factor), n, 0)
        return [f / factor ** (mpf(2) / d) for f in scaled], mpf(1)
    b = mpf(rule["b"])
    a = mp.log(factor) / mpf(n) ** b
    return [f / mp.exp(a * mpf(j + 1) ** b) for j, f in enumerate(frequencies)], mpf(1)


def yarn_amplitude(rule):
    if "attention_factor" in rule:
        return mpf(rule["attention_factor"])
    factor = mpf(rule["factor"])

    def g(m):
        return mpf(rule.get("mscale_coefficient", "0.1")) * mpf(m) * mp.log(factor) + 1 if factor > 1 else mpf(1)

    both = rule.get("mscale") and rule.get("mscale_all_dim")
    amplitude = g(rule["mscale"]) / g(rule["mscale_all_dim"]) if both else g(1)
    return amplitude * mpf(rule.get("attn_factor", 1))


def yarn(frequencies, rule, spec, d):
    factor, original = mpf(rule["factor"]), mpf(rule["original_max_position_embeddings"])

    def correction(turns):
        return d * mp.log(original / (mpf(turns) * 2 * mp.pi)) / (2 * mp.log(mpf(spec["rope_theta"])))

    low, high = correction(rule.get("beta_fast", 32)), correction(rule.get("beta_slow", 1))
    if rule.get("truncate", True):
        low, high = mp.floor(low), mp.ceil(high)
    low, high = max(low, mpf(0)), min(high, mpf(d - 1))
    if low == high:
        high += mpf("0.001")
    out = []
    for j, f in enumerate(frequencies):
        keep = (1 - min(max((j - low) / (high - low), mpf(0)), mpf(1))) * mpf(rule.get("extrapolation_factor", 1))
        if rule.get("log_interpolation"):
            out.append(mp.exp(keep * mp.log(f) + (1 - keep) * mp.log(f / factor)))
        else:
            out.append(f / factor * (1 - keep) + f * keep)
    return out, yarn_amplitude(rule)


def llama3(frequencies, rule, **_):
    factor, original = mpf(rule["factor"]), mpf(rule["original_max_position_embeddings"])
    low, high = mpf(rule["low_freq_factor"]), mpf(rule["high_freq_factor"])
    out = []
    for f in frequencies:
        keep = min(max((original * f / (2 * mp.pi) - low) / (high - low), mpf(0)), mpf(1))
        out.append((1 - keep) * f / factor + keep * f)
    return out, mpf(1)


def longrope(frequencies, rule, spec, **_):
    original = rule["original_max_position_embeddings"]
    is_long = spec["sequence_length"] > original
    divisors = rule["long_factor" if is_long else "short_factor"]
    mscale = rule.get("long_mscale" if is_long else "short_mscale", rule.get("attention_factor"))
    if mscale is None:
        factor = mpf(rule["factor"])
        mscale = mp.sqrt(1 + mp.log(factor) / mp.log(mpf(original))) if factor > 1 else 1
    return [f / mpf(divisor) for f, divisor in zip(frequencies, divisors)], mpf(mscale)


SCALINGS = {f.__name__: f for f in (linear, ntk, mixed_ntk, yarn, llama3, longrope)}


def scale(frequencies, spec, d):
    for name, rule in spec.get("rope_scaling", {}).items():
        return SCALINGS[name](frequencies, rule, spec=spec, d=d)
    return frequencies, mpf(1)


# --- axes -----------------------------------------------------------------------------------------


def mrope_axis(rule, section, j):
    """The axis of pair j of one ladder."""
    if rule == "MROPE_CHUNKED":
        ends = [sum(section[: i + 1]) for i in range(len(section))]
        return next(axis for axis, end in enumerate(ends) if j < end)
    if rule == "MROPE_INTERLEAVED":
        return j % 3 if j % 3 and j < 3 * section[j % 3] else 0
    return 1 + j % 2 if j < section[0] + section[1] else 0  # MROPE_ALTERNATING


def position_scale(spec, axis):
    return mpf(spec.get("position_scale", 1)) * mpf(spec.get("axes_position_scale", [1] * (axis + 1))[axis])


def rotary(spec):
    axes = spec.get("axes", 1)
    head = spec["head_dim"]
    d = spec.get("rotary_dim") or int(head * spec.get("partial_rotary_factor", 1))
    n = d // 2
    rule = spec.get("axis_rule", "AXIS_RULE_AXIAL" if axes > 1 else "AXIS_RULE_SINGLE").removeprefix("AXIS_RULE_")
    factor = mpf(1)
    if rule == "AXIAL":
        widths = spec.get("axes_dim") or [d // axes] * axes
        frequencies = [f for axis, width in enumerate(widths) for f in ladder(spec, width // 2, axis)]
        axis_of = [axis for axis, width in enumerate(widths) for _ in range(width // 2)]
    elif rule == "FREQUENCY_MAJOR":
        ladders = [ladder(spec, n // axes, axis) for axis in range(axes)]
        frequencies = [ladders[j % axes][j // axes] for j in range(n)]
        axis_of = [j % axes for j in range(n)]
    elif rule == "DENSE":
        n *= spec.get("frequency_heads", 1)
        every = ladder(spec, axes * n, 0)
        heads = spec.get("frequency_heads", 1)
        of_head = [every[h * axes * (n // heads) : (h + 1) * axes * (n // heads)] for h in range(heads)]
        frequencies = [[f for one in of_head for f in one[a * (n // heads) : (a + 1) * (n // heads)]] for a in range(axes)]
        axis_of = []
    else:
        n *= spec.get("frequency_heads", 1)
        frequencies, factor = scale(ladder(spec, n, 0), spec, d)
        axis_of = {"SINGLE": lambda j: 0, "LIST": lambda j: spec["axis_of_pair"][j % (d // 2)]}.get(
            rule, lambda j: mrope_axis(rule, spec.get("mrope_section"), j)
        )
        axis_of = [axis_of(j) for j in range(n)]
    if rule == "DENSE":
        frequencies = [[f * position_scale(spec, a) for f in one] for a, one in enumerate(frequencies)]
    else:
        live = spec.get("live_pairs", n)
        frequencies = [f * position_scale(spec, a) if j < live else mpf(0) for j, (f, a) in enumerate(zip(frequencies, axis_of))]
    return finish(spec, frequencies, axis_of, factor, n, [])


def finish(spec, frequencies, axis_of, factor, n, columns):
    unit = 2 * mp.pi if spec.get("frequency_unit") == "FREQUENCY_UNIT_TURNS" else mpf(1)
    return Facts(
        inv_freq=frequencies,
        axis=axis_of,
        factor=factor * mpf(spec.get("attention_factor", 1)),
        phase=[unit * mpf(p) for p in spec.get("phase", [])],
        pairs=n,
        columns=columns,
        cos_bias=mpf(spec.get("cos_bias", 0)),
        xpos=spec.get("xpos", {}),
    )


# --- encodings ------------------------------------------------------------------------------------


def components(spec, n, first):
    """The two lists of columns of the pairs first .. first + n."""
    sines, cosines = [f"s{first + j}" for j in range(n)], [f"c{first + j}" for j in range(n)]
    return (cosines, sines) if spec.get("order") == "TRIG_ORDER_COS_SIN" else (sines, cosines)


def block(spec, first, second):
    if spec.get("arrangement") == "ARRANGEMENT_INTERLEAVED":
        return [column for pair in zip(first, second) for column in pair]
    return first + second


def encoding(spec):
    axes, dim = spec.get("axes", 1), spec["dim"]
    grouping = spec.get("grouping", "AXIS_GROUPING_AXIS_MAJOR").removeprefix("AXIS_GROUPING_")
    split = dim % 2 and spec.get("odd_dim") == "ODD_DIM_SPLIT"
    content = dim - spec.get("pad_front", 0) - (0 if split else dim % 2)
    widths = spec.get("axes_dim") or [content if grouping == "SUM" else content // axes] * axes
    frequencies, axis_of, blocks = [], [], []
    for axis, width in enumerate(widths):
        first = len(frequencies)
        if spec.get("family") == "FREQUENCY_FAMILY_PER_ELEMENT":
            n = width
            theta = mpf(spec["rope_theta"])
            made = [theta ** (mpf(-2 * i) / width) for i in range(n)]
            columns = [f"{'sc'[i % 2]}{first + i}" for i in range(n)]
            blocks.append((columns, []))
        elif spec.get("order") == "TRIG_ORDER_COS_ONLY":
            n = width
            made = ladder(spec, n, axis)
            blocks.append(([f"c{first + j}" for j in range(n)], []))
        else:
            n = (width + 1) // 2
            made = ladder(spec, n, axis, width)
            sines, cosines = components(spec, n, first)
            blocks.append((sines, cosines[: width // 2]))
        frequencies += [f * position_scale(spec, axis) for f in made]
        axis_of += [axis] * n
    if grouping == "COMPONENT_MAJOR":
        columns = [c for a, _ in blocks for c in a] + [c for _, b in blocks for c in b]
    elif grouping == "SUM":
        columns = ["+".join(terms) for terms in zip(*(block(spec, *b) for b in blocks))]
    elif split:
        columns = blocks[0][0] + blocks[0][1]
    else:
        columns = [c for b in blocks for c in (block(spec, *b) if b[1] else b[0])]
    front = spec.get("pad_front", 0)
    columns = ["0"] * front + columns + ["0"] * (dim - front - len(columns))
    return finish(spec, frequencies, axis_of, mpf(1), len(frequencies), columns)


def table_columns(output, n):
    """The columns of a rotary table of n pairs; `output` is an EncodeOutput without its prefix."""
    if output == "COMPLEX":
        return [f"{part}{j}" for j in range(n) for part in "cs"]
    if output == "MATRIX_2X2":
        return [column for j in range(n) for column in (f"c{j}", f"-s{j}", f"s{j}", f"c{j}")]
    parts = [word[0].lower() for word in output.split("_") if word in ("COS", "SIN")]
    pairs = list(range(n))
    if output.endswith("DUPLICATED"):
        pairs = pairs + pairs
    elif output.endswith("REPEATED"):
        pairs = [j for j in pairs for _ in "ab"]
    return [f"{part}{j}" for part in parts for j in pairs]


def facts(spec):
    return encoding(spec) if spec["kind"] == "SPEC_KIND_ENCODING" else rotary(spec)
