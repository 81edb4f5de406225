# SPDX-License-Identifier: Apache-2.0
"""live_models.py: the models of the installed transformers, run now, beside what is stored of them and
beside Phasor. Every comparison returns a list of failures.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys

import classes
import layer_cases
import model_cases
import model_parity
import models
import published
from by_hand import HINTED, NO_ROTATION, REMEDIES
from case import ROOT, of_each, write
from upstream import survey

CONFIGS, LIVE = ROOT / "configs", pathlib.Path("build/conformance")


def of_all(cases_of):
    """The cases of every configuration class."""
    return list(itertools.chain.from_iterable(of_each(cases_of, sorted(survey()))))


def update():
    """Reads transformers' code again and writes the table, its page and the cases. Returns the exit status."""
    status = models.main(write_table=True)
    subprocess.run([sys.executable, ROOT.parent / "repo" / "models_page.py", "--fix"], check=True)
    write(CONFIGS / "models.json", of_all(model_cases.stored_cases))
    write(CONFIGS / "layers.json", of_all(layer_cases.cases_of))
    write(CONFIGS / "model_parity.json", of_all(model_parity.cases_of))
    return status


def changed(file, fresh, partly=False):
    """What of a stored file transformers computes otherwise now. `partly`: fresh has more cases than are stored."""
    old, new = ({(case["name"], case.get("dtype")): case for case in cases} for cases in (json.loads((CONFIGS / file).read_text()), fresh))
    apart = [key for key in (old if partly else old | new) if old.get(key) != new.get(key)]
    return [f"{file}: {' '.join(filter(None, key))}: transformers computes other numbers" for key in apart]


def compared(build, suite, variable, file, fresh):
    """Runs a suite of Phasor's tests on fresh cases, prints its sums."""
    write(LIVE / file, fresh)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LD_")} | {variable: str((LIVE / file).resolve())}
    done = subprocess.run([build / "tests/conformance/conformance_models_test", f"--gtest_filter={suite}.*", "--gtest_brief=1"], env=environment, text=True, capture_output=True)
    print(done.stderr, end="", flush=True)
    return [f"{suite} failed: {done.stdout[-4000:]}"] if done.returncode else []


def as_stored(cases):
    return json.loads(json.dumps(cases))


def sums(data, wrong):
    """One line: what became of every model_type that has a rotation. `wrong`: comparisons of them that failed."""
    own = [row for row in data["models"] if "unread" not in row or row["model_type"] not in data["parts"]]
    left = [row["model_type"] for row in own if "unread" in row]
    found = len({row["model_type"] for row in own} | data["parts"].keys())
    hinted, refused, none = (sorted(set(left) & of.keys()) for of in (HINTED, REMEDIES, NO_ROTATION))
    unaccounted = sorted(set(left) - {*hinted, *refused, *none})
    right = found - len(left)
    print(
        f"transformers {data['transformers']}: {found} model_types: {right} right from the file alone ({100 * right / found:.1f} %), "
        f"{len(hinted)} right with a hint, {len(none)} no rotation, wrong {wrong}, {len(refused)} refused with a remedy, unaccounted {len(unaccounted)}"
    )
    failures = [f"{name}: found in transformers' source; add what to do instead to by_hand.py" for name in unaccounted]
    return failures + (["less than 95 % of transformers' model_types are read from the file alone"] if right < 0.95 * found else [])


def report(build):
    """Runs everything, prints sums."""
    print(flush=True)
    failures = [f"models.json: {line}" for line in models.main(write_table=False)]

    cases = as_stored(of_all(model_cases.all_cases))
    failures += changed("models.json", cases, partly=True)
    failures += compared(build, "ModelsTest", "PHASOR_MODEL_CASES", "models.json", cases)

    layers = as_stored(of_all(layer_cases.cases_of))
    failures += changed("layers.json", layers)
    kept = [case["layers"] for case in layers if "layers" in case]
    print(f"{len(kept)} whole models of {len(kept[0])} layers; {len(layers) - len(kept)} files that transformers does not run so")

    parity = as_stored(of_all(model_parity.cases_of))
    failures += changed("model_parity.json", parity)
    failures += compared(build, "ModelParityTest", "PHASOR_MODEL_PARITY", "model_parity.json", parity)

    files = as_stored([published.computed(model) for model in json.loads(published.PUBLISHED.read_text())])
    failures += changed("published.json", files)
    print(f"{len(files)} published configurations, {sum('kinds' in case for case in files)} of classes that transformers has\n")

    data = json.loads(models.TABLE.read_text())
    ran = {case["name"].split()[0] for case in parity if "failure" not in case}
    return failures + classes.report(data, ran) + sums(data, len(failures))
