# SPDX-License-Identifier: Apache-2.0
"""Compares benchmarks of the checkout with those of another commit, which it builds.

  compare.py REF NAME... [--quick]

Builds the benchmarks of REF from a worktree in ~/.cache/phasor (or in $XDG_CACHE_HOME), and removes the worktree.
The builds of the last three commits stay there, so that a second comparison starts at once. The checkout's own
benchmarks are those of build/release. Both run in turns, and take turns at being first. A row shows the medians, and
the median ratio with its range over the rounds. A ratio above 1 means that the checkout is better.
"""

import argparse
import fcntl
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

PROGRAMS = {name: f"bench/kernels/bench_{name.replace('-', '_')}" for name in ("kernels", "plan", "move-keys")}
PROGRAMS |= {name: f"bench/server/bench_{name}" for name in ("rpc", "shm", "stream", "inproc", "batching")}
PROGRAMS |= {"instructions": "bench/instructions/bench_instructions"}
ROUNDS = 5
KEPT_BUILDS = 3
CERTAIN = 0.02  # a row is faster or slower if every round is by more than this


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("ref")
    arguments.add_argument("names", nargs="+", choices=PROGRAMS, metavar="NAME")
    arguments.add_argument("--quick", action="store_true")
    given = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the worktree is removed
    root = pathlib.Path(git("rev-parse", "--show-toplevel"))
    commit = git("rev-parse", "--verify", f"{given.ref}^{{commit}}")
    theirs = build(root, commit, given.names)
    ours = root / "build/release"
    for name in given.names:
        rounds = in_turns(name, [theirs, ours], 2 if given.quick else ROUNDS, given.quick)
        print(f"\n{name}: this checkout beside {given.ref} ({commit[:12]}), {len(rounds)} rounds in turns")
        print(table(rounds))
    return 0


def git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"compare: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


# --- the other commit -----------------------------------------------------------------------------


def build(root, commit, names):
    """The folder with the built programs of a commit."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "phasor"
    folder = cache / "compare" / commit
    folder.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(folder)
        builds = sorted(folder.parent.iterdir(), key=lambda build: build.stat().st_mtime)
        for old in builds[:-KEPT_BUILDS]:
            shutil.rmtree(old)
        built = [name for name in PROGRAMS if (folder / PROGRAMS[name]).exists()]
        if not set(names) <= set(built):
            print(f"building {', '.join(names)} of {commit[:12]} in {folder}", flush=True)
            targets = {pathlib.Path(PROGRAMS[name]).name for name in (*built, *names)}
            compile_in_worktree(root, commit, cache / "worktree", folder, targets)
    return folder


def compile_in_worktree(root, commit, tree, folder, targets):
    # ccache then finds what the build of another commit has compiled.
    os.environ["CCACHE_BASEDIR"] = str(tree.parent)
    if tree.exists():  # of a run that was killed
        shutil.rmtree(tree)
    git("-C", str(root), "worktree", "prune")
    git("-C", str(root), "worktree", "add", "--quiet", "--detach", str(tree), commit)
    try:
        run(["cmake", "--preset", "release", "-B", str(folder), "-DPHASOR_BUILD_TESTS=OFF"], tree)
        run(["cmake", "--build", str(folder), "--parallel", str(os.cpu_count()), "--target", *sorted(targets)], tree)
    finally:
        git("-C", str(root), "worktree", "remove", "--force", str(tree))


def run(command, folder):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        last = "\n".join(done.stdout.strip().splitlines()[-20:])
        sys.exit(f"{last}\ncompare: {' '.join(command)} failed; the commit may lack this benchmark")


# --- rounds ---------------------------------------------------------------------------------------


def in_turns(name, folders, rounds, quick):
    """A pair (theirs, ours) of values by row for each round."""
    pairs = []
    for i in range(rounds):
        order = [0, 1] if i % 2 == 0 else [1, 0]
        values = {k: measure(name, folders[k], quick) for k in order}
        pairs.append((values[0], values[1]))
        print(f"round {i + 1} of {rounds} of {name} done", file=sys.stderr, flush=True)
    return pairs


def measure(name, folder, quick):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [str(folder / PROGRAMS[name]), out.name, *(["--quick"] if quick else [])]
        if name == "instructions":
            counter = pathlib.Path(__file__).with_name("instructions") / "count.py"
            command = [sys.executable, str(counter), command[0], out.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        text = pathlib.Path(out.name).read_text(encoding="utf-8")
        if not text:
            sys.exit(f"compare: {' '.join(command)} gave no rows:\n{(done.stdout + done.stderr)[-2000:]}")
        return {key_of(row): row for row in json.loads(text) if row["value"]}


def key_of(row):
    return (row["name"], row["shape"], row["dtype"], row["threads"], row["cache"], row["baseline"])


def gain(theirs, ours):
    """How many times as good ours is. The ratio of a row to its baseline says whether more is better."""
    value, baseline = theirs["value"], theirs["baseline_value"] or 1
    is_rate = abs(theirs["ratio"] - value / baseline) < abs(theirs["ratio"] - baseline / value)
    return ours["value"] / theirs["value"] if is_rate else theirs["value"] / ours["value"]


def table(rounds):
    lines = [f"{'row':<64}{'theirs':>12}{'ours':>12} {'unit':<14}{'ratio':>7}  range"]
    seen = set()
    for key, row in rounds[0][0].items():
        both = [(old[key], new[key]) for old, new in rounds if key in old and key in new]
        what = " ".join(str(part) for part in (*key[:3], f"x{key[3]}", key[4]) if part)
        if key[:5] in seen:
            continue  # the same value beside another baseline
        seen.add(key[:5])
        if not both:
            lines.append(f"{what:<64}  not in this checkout")
            continue
        gains = [gain(*pair) for pair in both]
        old, new = (statistics.median(pair[i]["value"] for pair in both) for i in (0, 1))
        lines.append(
            f"{what:<64}{old:>12.6g}{new:>12.6g} {row['unit']:<14}{statistics.median(gains):>7.3f}"
            f"  {min(gains):.3f} to {max(gains):.3f}{verdict(gains)}"
        )
    return "\n".join(lines)


def verdict(gains):
    if min(gains) > 1 + CERTAIN:
        return "  faster"
    return "  SLOWER" if max(gains) < 1 - CERTAIN else ""


if __name__ == "__main__":
    sys.exit(main())
