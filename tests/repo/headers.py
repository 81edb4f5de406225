# SPDX-License-Identifier: Apache-2.0
"""Checks that every header compiles alone: `headers.py sources|tests COMPILER [FLAG...]`. With -I<generated> wire
headers are found. `tests`: the headers below tests/; `sources`: all others.

A source that includes its own header first proves this where each source is compiled alone (preset
dev, `./dev test --full`), so those headers are not checked again. Tests do not count, because
several are compiled as one unit.
"""

import concurrent.futures
import os
import subprocess
import sys

import tree


def compiles_alone(command, root, header):
    """Compiler output when `header`, included first and alone, does not compile; else ''."""
    run = subprocess.run(
        [*command, "-I.", "-fsyntax-only", "-x", "c++", "-"],
        input=f'#include "{header}"\n#include "{header}"\n',
        cwd=root, capture_output=True, text=True, check=False,
    )
    return run.stderr if run.returncode else ""


def check(command, root, headers):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        outputs = pool.map(lambda header: compiles_alone(command, root, header), headers)
    return [f"{header}: does not compile alone\n{output}" for header, output in zip(headers, outputs) if output]


def shown_by_a_source(files):
    """Headers that a source of ours includes before anything else."""
    alone = (text for path, text in files.items() if path.endswith(".cc") and not path.startswith("tests/") and text)
    first = (next(iter(tree.includes(text)), None) for text in alone)
    return {include[1] for include in first if include}


def main():
    files = tree.load()
    shown = shown_by_a_source(files)
    of_tests = {"sources": False, "tests": True}[sys.argv[1]]
    headers = [p for p in files if p.endswith(".h") and p not in shown and p.startswith("tests/") == of_tests]
    found = check(sys.argv[2:], tree.ROOT, headers)
    print("\n".join(found) or f"{len(headers)} headers compile alone, {len(shown)} more are the first include of a source")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
