# SPDX-License-Identifier: Apache-2.0
"""generate.py [DIR] [FAMILY...]: writes the golden values to DIR, by default
tests/conformance/golden.

Each case is computed by the upstream package and by the formula in 300-bit arithmetic. If they
differ by more than upstream's own rounding explains, this fails. `./dev conformance` installs
requirements.txt and runs this.
"""

import importlib
import pathlib
import sys

import torch

from case import GOLDEN, of_each, record, write
from walk import Trace

FAMILIES = ("rope", "multi_axis", "sinusoid", "timestep", "tables", "diffusers_rope", "diffusers_lines", "diffusers_times", "timm_cases", "hf_towers")


def of_family(family):
    """Its cases as they are kept, and what ran for them."""
    trace = Trace()
    return [record(trace.watched(case)) for case in importlib.import_module(family).cases()], trace.ran


def generate(out, families=FAMILIES):
    """Returns what of the upstream packages ran."""
    torch.set_num_threads(1)
    trace = Trace()
    for family in families:  # once, not in every process
        importlib.import_module(family)
    for family, (records, ran) in zip(families, of_each(of_family, families), strict=True):
        write(out / f"{family}.json", records)
        print(f"{family}: {len(records)} cases, upstream and formula agree", file=sys.stderr)
        for code, cases in ran.items():
            trace.ran[code] |= cases
    return trace


if __name__ == "__main__":
    arguments = sys.argv[1:]
    folder = pathlib.Path(arguments.pop(0)) if arguments and arguments[0] not in FAMILIES else GOLDEN
    generate(folder, arguments or FAMILIES)
