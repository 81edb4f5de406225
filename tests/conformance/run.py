# SPDX-License-Identifier: Apache-2.0
"""run.py BUILD [--update | --update-models]: compares Phasor with the installed upstream packages. One
row per convention and per preset, and a count per kind of model_type.

Computes every case again with the packages, compares the result with the golden values (--update
replaces them), then compares Phasor with the new numbers. Exit status 1 if a comparison fails or a
preset has no row.

--update-models reads transformers' code again: it writes kernels/spec/models.json, docs/models.md and
the cases of models_test.cc, prints what changed upstream, and lists what needs a person.
"""

import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

import live_models
import walk
from case import GOLDEN
from generate import generate

UPSTREAM = ("upstream_cos", "upstream_sin", "upstream_values")


def read(folder):
    return {case["name"]: case for path in sorted(folder.glob("*.json")) for case in json.loads(path.read_text())}


def drift(live, golden):
    """Units in the last place of f32 by which upstream's fresh numbers differ from the golden ones, or what is wrong."""
    for key, value in live.items():
        if not (key.startswith("upstream_") or value == golden.get(key)):
            return f"{key} changed"
    apart = 0.0
    for key in UPSTREAM:
        new, old = (np.array(side.get(key, []), np.float32) for side in (live, golden))
        if new.size:
            apart = max(apart, float(np.max(np.abs(new - old) / np.spacing(np.abs(old)))))
    return apart


def measure(build, live):
    """Rows of conformance_test: (case, arithmetic) -> (result, difference)."""
    rows = live.parent / "rows.tsv"
    rows.unlink(missing_ok=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LD_")}
    environment |= {"PHASOR_CONFORMANCE_GOLDEN": str(live.resolve()), "PHASOR_CONFORMANCE_ROWS": str(rows.resolve())}
    test = subprocess.run([build / "tests/conformance/conformance_test", "--gtest_brief=1"], env=environment, text=True, capture_output=True)
    found = {}
    for line in rows.read_text().splitlines():
        name, _, arithmetic, result, difference = line.split("\t", 4)
        previous = found.get((name, arithmetic))
        if not previous or previous[0] != "FAIL":
            found[name, arithmetic] = (result, difference)
    return found, test


def cell(results):
    """The worst of several results, and its largest difference."""
    if not results:
        return "-", ""
    failed = [r for r in results if r[0] == "FAIL"]
    if failed:
        return failed[0]
    return "PASS", max((d for _, d in results), key=lambda d: float(d.split()[0]))


def main():
    if "--update-models" in sys.argv:
        sys.exit(live_models.update())
    build = pathlib.Path(sys.argv[1]).resolve()
    live = pathlib.Path("build/conformance/golden")
    shutil.rmtree(live, ignore_errors=True)
    trace = generate(live)
    if "--update" in sys.argv:
        for path in live.glob("*.json"):
            shutil.copy(path, GOLDEN / path.name)
    fresh, golden = read(live), read(GOLDEN)
    drifts = {name: drift(case, golden.get(name, {})) for name, case in fresh.items()}
    found, test = measure(build, live)

    groups = collections.defaultdict(list)  # a preset's cases are one row
    for name, case in fresh.items():
        groups[("preset", case["preset"]) if case["preset"] else ("convention", name)].append(name)
    failures = [f"{name}: {d}" for name, d in drifts.items() if isinstance(d, str) or d > 2]
    failures += [f"{name}: gone" for name in golden.keys() - fresh.keys()]
    print(f"{'':11}{'name':38}{'exact':9}{'|phasor - truth|':18}{'parity':9}{'|phasor - upstream|':21}{'|upstream - truth|':20}upstream f32 against golden")
    for (kind, name), cases in sorted(groups.items()):
        exact = cell([found[c, "exact"] for c in cases if (c, "exact") in found])
        named = [found[c, "preset"] for c in cases if (c, "preset") in found]
        if named:  # written only when the name does not resolve to what the case says
            exact = min(named)
        parity = cell([found[c, "parity"] for c in cases if (c, "parity") in found])
        failures += [f"{name}: {result}" for result in (exact, parity) if result[0] == "FAIL"]
        apart = max(drifts[c] if not isinstance(drifts[c], str) else 1e9 for c in cases)
        difference = [r[1] if r[0] == "PASS" else "" for r in (exact, parity)]
        error = max(fresh[c]["upstream_error"] for c in cases)
        print(f"{kind:11}{name:38}{exact[0]:9}{difference[0]:18}{parity[0]:9}{difference[1]:21}{error:<20.3g}{apart:.2g} ulp")

    environment = {k: v for k, v in os.environ.items() if not k.startswith("LD_")}
    bias = subprocess.run([sys.executable, pathlib.Path(__file__).with_name("bias.py")], text=True, capture_output=True)
    print(f"\n{bias.stdout}{bias.stderr if bias.returncode else ''}", end="")
    failures += ["bias"] if bias.returncode else []
    failures += live_models.report(build)
    failures += walk.report(trace, "--update" in sys.argv)
    listed = subprocess.run([build / "client/cli/phasor", "presets", "--json"], env=environment, text=True, capture_output=True, check=True)
    presets = {preset["name"] for preset in json.loads(listed.stdout)}
    rows = {name for kind, name in groups if kind == "preset"}
    failures += [f"{name}: a preset without a row" for name in sorted(presets - rows)]
    failures += [f"{name}: golden values of a preset that is not there" for name in sorted(rows - presets)]
    conventions = len(groups) - len(rows)
    print(f"\n{len(presets)} presets, {len(rows & presets)} rows for them; {conventions} conventions beside them")
    if test.returncode != 0:
        print(test.stdout[-4000:], test.stderr[-2000:])
        failures.append("conformance_test failed")
    for failure in failures:
        print(f"FAIL {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
