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

from case import GOLDEN, record, write

FAMILIES = ("rope", "multi_axis", "sinusoid", "timestep", "tables")


def generate(out, families=FAMILIES):
    torch.set_num_threads(1)
    for family in families:
        records = [record(case) for case in importlib.import_module(family).cases()]
        write(out / f"{family}.json", records)
        print(f"{family}: {len(records)} cases, upstream and formula agree", file=sys.stderr)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    folder = pathlib.Path(arguments.pop(0)) if arguments and arguments[0] not in FAMILIES else GOLDEN
    generate(folder, arguments or FAMILIES)
