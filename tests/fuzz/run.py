# SPDX-License-Identifier: Apache-2.0
"""run.py BUILD FOLDER [--minutes N] [--only NAME,...] [--keep] [--coverage]: runs libFuzzer over every parser and over requests, one
after the other, with the corpora in FOLDER, which begin as those of tests/fuzz. Prints executions and edges of each. --keep: minimises the
corpora and writes tests/fuzz/{parsers,requests}.tar.xz. --coverage: no fuzzing, but what the corpora reach, by source file."""

import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REQUESTS = "requests"


def parsers():
    """The names of check_parsers.h, in their order: the first byte of an input is the number of its parser."""
    text = (HERE / "check_parsers.h").read_text(encoding="utf-8")
    names = re.findall(r"^  k(\w+),$", text, re.MULTILINE)
    return [re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower() for name in names]


class Target:
    def __init__(self, name, number, build, folder):
        self.name, self.number = name, number
        self.is_request = name == REQUESTS
        self.program = build / "tests/fuzz" / ("request_fuzz" if self.is_request else "parser_fuzz")
        self.corpus = folder / name
        self.packed = HERE / (f"{REQUESTS}.tar.xz" if self.is_request else "parsers.tar.xz")

    def owns(self, data):
        return self.is_request or (len(data) > 0 and data[0] % len(parsers()) == self.number)

    def prepare(self):
        """The seeds, and what earlier runs found. What is there already stays."""
        self.corpus.mkdir(parents=True, exist_ok=True)
        seeds = {path.name: path.read_bytes() for path in (HERE / ("corpus" if self.is_request else "parsers")).iterdir()}
        if self.packed.exists():
            with tarfile.open(self.packed) as archive:
                seeds.update({pathlib.Path(entry.name).name: archive.extractfile(entry).read() for entry in archive if entry.isfile()})
        for name, data in seeds.items():
            if self.owns(data):
                (self.corpus / name).write_bytes(data)

    def run(self, *options, timeout=None):
        command = [str(self.program), f"-artifact_prefix={self.corpus.parent}/{self.name}-", *options, str(self.corpus)]
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, check=False)

    def fuzz(self, seconds):
        """Returns executions, edges reached, inputs kept, and the end of what was said about an error."""
        done = self.run(f"-max_total_time={max(1, round(seconds))}", "-print_final_stats=1", "-timeout=20", "-rss_limit_mb=4096")
        executed = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
        edges = re.findall(r" cov: (\d+) ", done.stderr)
        error = "" if done.returncode == 0 else done.stderr[-3000:]
        return int(executed[1]) if executed else 0, int(edges[-1]) if edges else 0, sum(1 for _ in self.corpus.iterdir()), error

    def minimise(self):
        small = self.corpus.with_name(f"{self.name}.small")
        shutil.rmtree(small, ignore_errors=True)
        small.mkdir()
        merged = subprocess.run([str(self.program), "-merge=1", str(small), str(self.corpus)], capture_output=True, text=True, errors="replace", check=False)
        if merged.returncode != 0:
            raise RuntimeError(merged.stderr[-2000:])
        shutil.rmtree(self.corpus)
        small.rename(self.corpus)


def pack(targets):
    """Into the archives, sorted, without owners and times, so that equal corpora are equal files."""
    for packed in {target.packed for target in targets}:
        inputs = sorted(path for target in targets if target.packed == packed for path in target.corpus.iterdir())
        with tarfile.open(packed, "w:xz", preset=9) as archive:
            for path in inputs:
                entry = tarfile.TarInfo(path.name)
                entry.size = path.stat().st_size
                with path.open("rb") as data:
                    archive.addfile(entry, data)
        print(f"{packed.relative_to(ROOT)}: {len(inputs)} inputs, {packed.stat().st_size / 1024:.0f} KiB")


def coverage(targets):
    """Edges of the functions of each source file, together over the targets, and the functions that none reaches."""
    functions = {}  # (file, name): [edges reached at most by one target, edges]
    for target in targets:
        said = target.run("-runs=0", "-print_coverage=1").stderr
        for reached, edges, name, file in re.findall(r"COVERED_FUNC: hits: \d+ edges: (\d+)/(\d+) (.+) (\S+):\d+$", said, re.MULTILINE):
            place = pathlib.Path(file)
            if ROOT in place.parents and "build" not in place.relative_to(ROOT).parts:
                seen = functions.setdefault((str(place.relative_to(ROOT)), name), [0, int(edges)])
                seen[0] = max(seen[0], int(reached))
    files = collections.defaultdict(list)
    for (file, name), (reached, edges) in functions.items():
        files[file].append((name, reached, edges))
    print("| source | edges reached | functions not reached |\n|---|---|---|")
    for file in sorted(files):
        of_file = files[file]
        reached, edges = sum(f[1] for f in of_file), sum(f[2] for f in of_file)
        missed = sorted({re.sub(r"\(.*", "", f[0]).removeprefix("phasor::") for f in of_file if f[1] == 0})
        print(f"| `{file}` | {reached} of {edges} ({100 * reached // max(1, edges)} %) | {', '.join(missed)} |")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--minutes", type=float, default=30)
    arguments.add_argument("--only", default="", help="names of targets")
    arguments.add_argument("--keep", action="store_true")
    arguments.add_argument("--coverage", action="store_true")
    given = arguments.parse_args()
    names = [*parsers(), REQUESTS]
    wanted = given.only.split(",") if given.only else names
    if unknown := set(wanted) - set(names):
        sys.exit(f"--only: {', '.join(sorted(unknown))} are unknown; use {', '.join(names)}")
    targets = [Target(name, number, given.build, given.folder) for number, name in enumerate(names) if name in wanted]
    for target in targets:
        target.prepare()
    if given.coverage:
        coverage(targets)
        return
    failed, total = False, 0
    print("| target | executions | edges | inputs |\n|---|---|---|---|", flush=True)
    for target in targets:
        executions, edges, inputs, error = target.fuzz(60 * given.minutes / len(targets))
        total += executions
        print(f"| {target.name} | {executions:,} | {edges:,} | {inputs} |", flush=True)
        if error:
            failed = True
            print(f"{target.name}: {error}", file=sys.stderr)
    print(f"| together | {total:,} | | |")
    if given.keep and not failed:
        for target in targets:
            target.minimise()
        pack([Target(name, number, given.build, given.folder) for number, name in enumerate(names) if (given.folder / name).exists()])
    sys.exit(1 if failed else 0)


main()
