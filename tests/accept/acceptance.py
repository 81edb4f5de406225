# SPDX-License-Identifier: Apache-2.0
"""Runs the checks of a topic and prints one line each: PASS, MISS, FAIL or SKIP, with the check's
result.

A check is a function without arguments whose docstring is the promise. It returns what it saw, or
raises Fail or Skip with the reason. It raises Miss if it works but is slower than its target; that
is reported and is not a failure.
"""

import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Fail(Exception):
    pass


class Skip(Exception):
    pass


class Miss(Exception):
    pass


def run(topic, checks):
    """Runs all, prints the summary, ends the process: status 1 when a check failed."""
    count = dict.fromkeys(("PASS", "MISS", "FAIL", "SKIP"), 0)
    for check in checks:
        outcome, seen = _outcome(check)
        count[outcome] += 1
        print(f"{outcome}  {' '.join(check.__doc__.split())}: {seen}", flush=True)
    print(f"\naccept {topic}: " + ", ".join(f"{n} {outcome}" for outcome, n in count.items()))
    sys.exit(1 if count["FAIL"] else 0)


def _outcome(check):
    try:
        return "PASS", check()
    except Fail as reason:
        return "FAIL", reason
    except Skip as reason:
        return "SKIP", reason
    except Miss as reason:
        return "MISS", reason
    except Exception as error:  # a check that breaks has not passed
        return "FAIL", f"{type(error).__name__}: {error}"


def command(*arguments, timeout):
    """Standard output of a command at the root of the repository; fails with its last lines."""
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        last = " | ".join((done.stdout + done.stderr).strip().split("\n")[-4:])
        raise Fail(f"{' '.join(map(str, arguments))} ended with status {done.returncode}: {last}")
    return done.stdout


class TestRun:
    """What `./dev test` wrote about its last run of a mode."""

    def __init__(self, mode):
        folder = ROOT / "build/test"
        self.mode = mode
        if not (folder / f"{mode}.xml").exists():
            command = "./dev test" if mode == "default" else f"./dev test --{mode}"
            raise Skip(f"no result of {command} here: run it on a Debian 12 with root rights that reaches apt and PyPI")
        status, seconds = (folder / f"{mode}.result").read_text(encoding="utf-8").split()
        self.status, self.seconds = int(status), int(seconds)
        self.cases = {c.get("name"): c for c in xml.parse(folder / f"{mode}.xml").getroot().iter("testcase")}

    def passed(self, pattern):
        """That every test whose name matches ran and passed; says how many, and quotes lines that begin with MEASURED."""
        cases = {name: case for name, case in self.cases.items() if re.fullmatch(pattern, name)}
        if not cases:
            raise Fail(f"no test is called {pattern}")
        for outcome, kind in (("fail", Fail), ("notrun", Skip), ("disabled", Skip)):
            names = [name for name, case in cases.items() if case.get("status") == outcome]
            if names:
                # A test that is skipped says what it lacks.
                why = {w for n in names for w in re.findall(r"^SKIP:? (.*)", cases[n].findtext("system-out") or "", re.M)}
                raise kind("; ".join([f"{outcome}: {', '.join(names[:8])}", *sorted(why)]))
        measured = [line for case in cases.values() for line in re.findall(r"^MEASURED (.*)", case.findtext("system-out") or "", re.M)]
        return "; ".join([f"{len(cases)} tests passed"] + measured)


def benchmark(name):
    """Rows of build/bench/NAME.json against their targets."""
    path = ROOT / f"build/bench/{name}.json"
    if not path.exists():
        raise Skip(f"no {path.relative_to(ROOT)}: run ./dev bench {name}")
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = [row for row in (document["rows"] if isinstance(document, dict) else document) if row.get("target")]
    if not rows:
        raise Fail(f"{path.relative_to(ROOT)} has no row with a target")
    missed = [row for row in rows if not row["met"]]
    text = "; ".join(
        f"{r['name']} {r['shape']} {r['dtype']} x{r['threads']}: {r['ratio']:.2f} of {r['baseline']}, target {r['target']:.2f}" for r in missed
    )
    if missed:
        raise Miss(f"{len(missed)} of {len(rows)} targets missed: {text}")
    at_floor = sum(row["ratio"] < row["target"] for row in rows)
    return f"{len(rows)} of {len(rows)} targets met" + (f", {at_floor} of them at their floor" if at_floor else "")


def promised(promise, check):
    """A check: that function, with its promise."""
    check.__doc__ = promise
    return check


def cannot(promise, why):
    """A check that always skips."""

    def check():
        raise Skip(why)

    return promised(promise, check)


def of_full(promise, pattern):
    """A check: the tests whose names match passed in the last `./dev test --full`."""
    return promised(promise, lambda: TestRun("full").passed(pattern))


def of_test(promise, pattern):
    """A check: the tests whose names match passed in the last `./dev test`, or `./dev test --full` if that was not run."""

    def check():
        try:
            return TestRun("default").passed(pattern)
        except Skip:
            return TestRun("full").passed(pattern)

    return promised(promise, check)


def of_benchmark(name, promise):
    """A check: the last `./dev bench NAME` met its targets."""
    return promised(promise, lambda: benchmark(name))
