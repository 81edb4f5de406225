# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of small fixed workloads and compares them with their limits.

  count.py PROGRAM [JSON] [--only NAME]...      a table, and its rows in JSON; status 1 if a count is above its limit
  count.py PROGRAM --update [--only NAME]...    writes limits.json: the counts, and limits 5 % above

PROGRAM is bench_instructions. Counts do not depend on the load or the speed of a machine: valgrind shows every
program the same processor with AVX2. They do depend on the compiler, so limits hold for one.
Exit status 77: cannot count here; the reason is printed.
"""

import argparse
import datetime
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LIMITS = pathlib.Path(__file__).with_name("limits.json")
ROOM = 1.05  # of a limit, over the count


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def counter():
    """The command that runs a program under callgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        skip("valgrind is not installed; ./dev test installs it (deploy/apt-test-packages.txt)")
    processor = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if " avx2 " not in processor:
        skip("this processor has no AVX2, so valgrind cannot show it to the kernels")
    return [valgrind, "-q", "--tool=callgrind", "--toggle-collect=phasor_measured"]


def count(command, program, name):
    """Instructions of one run of a workload."""
    with tempfile.NamedTemporaryFile(prefix="callgrind.") as out:
        # A fixed environment: its size moves the stack. glibc's caches of freed blocks are large enough, so that no
        # count depends on what the program allocated before.
        done = subprocess.run(
            [*command, f"--callgrind-out-file={out.name}", program, name],
            capture_output=True, text=True, timeout=300, check=False,
            env={"PATH": "/usr/bin:/bin", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=127"},
        )
        text = pathlib.Path(out.name).read_text(encoding="utf-8", errors="replace")
    total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
    if done.returncode != 0 or total is None or int(total[1]) == 0:
        sys.exit(f"{name}: not counted, status {done.returncode}: {(done.stdout + done.stderr).strip()}")
    return round(int(total[1]) / int(done.stdout.split()[-1]))


def verdict(counted, known):
    """What is wrong with a count, and whether that fails; ("", False): nothing."""
    if known is None:
        return "no limit: run bench/instructions/count.py --update", True
    if counted > known["limit"]:
        return "ABOVE THE LIMIT", True
    if counted < known["count"] * (2 - ROOM):
        return "much fewer: write it down with --update", False
    return "", False


def json_row(name, counted, known):
    """As bench/harness.cc writes rows."""
    limit = known["limit"] if known else counted
    return {"name": name, "shape": "", "dtype": "", "threads": 1, "cache": "", "value": counted, "unit": "instructions",
            "baseline": "limit", "baseline_value": limit, "ratio": limit / counted, "target": 1.0}


def update(limits, counts, compiler, names):
    today = datetime.date.today().isoformat()
    workloads = limits["workloads"]
    for name, counted in counts.items():
        workloads[name] = {"count": counted, "limit": round(counted * ROOM), "date": today}
    lines = ",\n".join(f'  "{name}": {json.dumps(workloads[name])}' for name in names if name in workloads)
    LIMITS.write_text(f'{{"compiler": "{compiler}", "workloads": {{\n{lines}\n}}}}\n', encoding="utf-8")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program")
    arguments.add_argument("json", type=pathlib.Path, nargs="?")
    arguments.add_argument("--only", action="append", default=[])
    arguments.add_argument("--update", action="store_true")
    given = arguments.parse_args()

    limits = json.loads(LIMITS.read_text(encoding="utf-8"))
    listed = subprocess.run([given.program], capture_output=True, text=True, check=True).stdout.splitlines()
    compiler, names = listed[0], listed[1:]
    if compiler != limits["compiler"] and not given.update:
        skip(f"the limits hold for code of {limits['compiler']}; this is of {compiler}")
    command = counter()
    counts, failed = {}, False
    print(f"{'workload':<20}{'instructions':>14}{'written down':>14}{'limit':>14}{'ratio':>8}")
    for name in given.only or names:
        counted = counts[name] = count(command, given.program, name)
        known = limits["workloads"].get(name)
        text, fails = verdict(counted, known)
        failed = failed or fails
        numbers = f"{known['count']:>14,}{known['limit']:>14,}{counted / known['count']:>8.3f}" if known else ""
        print(f"{name:<20}{counted:>14,}{numbers}  {text}".rstrip(), flush=True)
    if given.json:
        rows = [json_row(name, counted, limits["workloads"].get(name)) for name, counted in counts.items()]
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if given.update:
        update(limits, counts, compiler, names)
        return 0
    for name in sorted(set(limits["workloads"]) - set(names)):
        print(f"{name}: has a limit, but there is no such workload")
        failed = True
    if failed:
        print("docs/benchmarks.md, \"Instruction counts\", says how to find the cause, and when to raise a limit")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
