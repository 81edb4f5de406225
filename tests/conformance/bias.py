# SPDX-License-Identifier: Apache-2.0
"""Golden values of attention biases, computed by the upstream packages.

    python tests/conformance/bias.py --write    # makes golden/bias.inc
    python tests/conformance/bias.py            # compares it with the installed packages

Buckets are written as runs {first distance, bucket}; a run ends where the next one begins.
tests/support/bias_golden.h reads them. Buckets must be the same. Slopes may differ by a unit in the
last place: torch computes powers by other instructions on a processor with AVX-512 than on one with
AVX2 (ATEN_CPU_CAPABILITY), and the stored ones are those of AVX2.
"""

import pathlib
import re
import sys

import numpy as np

import timm
import torch
import transformers
from timm.models.swin_transformer import get_relative_position_index
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

GOLDEN = pathlib.Path(__file__).parent / "golden" / "bias.inc"
# (bidirectional, buckets, max_distance): T5; WavLM; odd ones whose ends are near a rounding.
T5 = [(True, 32, 128), (False, 32, 128), (True, 64, 256), (False, 64, 128), (True, 320, 800), (False, 320, 800),
      (True, 128, 1024), (False, 16, 20), (True, 8, 16), (False, 2, 9), (False, 48, 1000), (True, 100, 10000)]
DEBERTA = [(256, 512), (32, 128), (48, 320), (64, 1000), (2, 8)]
SLOPE = re.compile(r"0x1\.\w+p-\d+")
MOST_UNITS = 1
HEADS = [1, 2, 3, 8, 12, 16, 20, 32, 71, 112]
WINDOWS = [(7, 7), (2, 3), (3, 2), (1, 4)]


def distances(limit):
    """Every distance to twice the limit, then sparse ones as far as f32 counts, both ways."""
    near = list(range(2 * limit + 10))
    far = [n for e in range(10, 31) for n in (2**e - 1, 2**e, 2**e + 1) if n >= len(near)]
    ahead = near + far
    return torch.tensor([-n for n in reversed(ahead[1:])] + ahead)


def runs(at, buckets):
    """The runs of equal buckets. Distances that were not asked for lie inside runs only by accident, so the far
    ones are runs of their own."""
    rows, last = [], None
    for distance, bucket in zip(at.tolist(), buckets.tolist()):
        if bucket != last:
            rows.append(f"{{{distance}, {bucket}}}")
        last = bucket
    return "{" + ", ".join(rows) + "}"


def t5(bidirectional, buckets, max_distance):
    at = distances(max_distance)
    found = T5Attention._relative_position_bucket(at, bidirectional, buckets, max_distance)
    return f"{{{str(bidirectional).lower()}, {buckets}, {max_distance}, {len(at)}, {runs(at, found)}}},"


def deberta(bucket_size, max_position):
    at = distances(max_position)
    found = make_log_bucket_position(at, bucket_size, max_position)
    return f"{{{bucket_size}, {max_position}, {len(at)}, {runs(at, found.long())}}},"


def slopes(heads):
    bloom = build_alibi_tensor(torch.ones(1, 3), heads, torch.float32).reshape(heads, 3)
    mpt = build_mpt_alibi_tensor(heads, 3).reshape(heads, 3)
    assert torch.equal(bloom[:, 0], torch.zeros(heads)) and torch.equal(mpt[:, 2], torch.zeros(heads))
    row = lambda values: "{" + ", ".join(float(v).hex() for v in values) + "}"
    return f"{{{heads}, {row(bloom[:, 1])}, {row(-mpt[:, 1])}}},"


def swin(height, width):
    index = get_relative_position_index(height, width)
    return f"{{{height}, {width}, {{{', '.join(str(i) for i in index.reshape(-1).tolist())}}}}},"


def wrap(line):
    """Breaks long lines at commas."""
    lines, line = [], "  " + line
    while len(line) > 100:
        cut = line.rfind(", ", 0, 100) + 1
        lines.append(line[:cut])
        line = "    " + line[cut + 1 :]
    return "\n".join(lines + [line])


def section(kind, name, rows):
    return f"const {kind} {name}[] = {{\n" + "\n".join(wrap(row) for row in rows) + "\n};\n"


def golden():
    head = f"""// SPDX-License-Identifier: Apache-2.0
// Made by tests/conformance/bias.py with transformers {transformers.__version__}, timm {timm.__version__}, torch {torch.__version__.split("+")[0]}.
// clang-format off
"""
    return head + "".join([
        section("T5Golden", "kT5Golden", [t5(*row) for row in T5]),
        section("DebertaGolden", "kDebertaGolden", [deberta(*row) for row in DEBERTA]),
        section("SlopeGolden", "kSlopeGolden", [slopes(heads) for heads in HEADS]),
        section("SwinGolden", "kSwinGolden", [swin(*window) for window in WINDOWS]),
    ])


def parts(text):
    """What must be the same, and the slopes."""
    text = "\n".join(line for line in text.split("\n") if not line.startswith("//"))
    return SLOPE.sub("slope", text), np.array([float.fromhex(slope) for slope in SLOPE.findall(text)], np.float32)


def main():
    if "--write" in sys.argv:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(golden())
        return 0
    (stored, old), (made, new) = parts(GOLDEN.read_text()), parts(golden())
    same = stored == made
    apart = np.abs(new - old) / np.spacing(old) if same else np.array([np.inf])
    passed = np.max(apart) <= MOST_UNITS
    print(
        f"bias: {'PASS' if passed else 'FAIL'}, {GOLDEN.name} against transformers {transformers.__version__}, timm {timm.__version__}: "
        f"buckets {'equal' if same else 'differ'}; {np.count_nonzero(apart)} of {len(old)} slopes differ, by {np.max(apart):g} units in the last place"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
