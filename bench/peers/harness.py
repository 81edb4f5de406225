# SPDX-License-Identifier: Apache-2.0
"""Times Phasor and its peers in turn and reports rows as bench/harness.h does."""

import datetime
import json
import os
import pathlib
import re
import statistics
import time


def cpu_model():
    found = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found[1] if found else "unknown"


def order_of(names, turn):
    """The order of a round. Over twice as many rounds as names, each follows each other one equally often."""
    n = len(names)
    zigzag = [(i + 1) // 2 if i % 2 == 1 else n - i // 2 for i in range(n)]  # 0, 1, n - 1, 2, n - 2, ...
    order = [names[(i + turn) % n] for i in zigzag]
    return order[::-1] if turn // n % 2 == 1 else order


def median_seconds(candidates, rounds, round_seconds):
    """The median seconds of one run of each candidate {name: function}. Each round runs each once, in another order.

    Fewer rounds, but at least five, if they would take more than a minute.
    """
    once = {}
    for name, run in candidates.items():
        run()  # compiles and touches memory
        start = time.perf_counter()
        run()
        once[name] = time.perf_counter() - start
    repeats = {name: max(1, int(round_seconds / seconds)) for name, seconds in once.items()}
    rounds = min(rounds, max(5, int(60 / sum(once[name] * repeats[name] for name in candidates))))
    seconds = {name: [] for name in candidates}
    for turn in range(rounds):
        for name in order_of(list(candidates), turn):
            run = candidates[name]
            time.sleep(0.06)  # onnxruntime's threads spin for up to 0.04 s after their last work
            if repeats[name] > 1:
                run()  # brings its data into the caches, which do not hold that of longer runs
            start = time.perf_counter()
            for _ in range(repeats[name]):
                run()
            seconds[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(values) for name, values in seconds.items()}


class Report:
    """Rows on the terminal and in the JSON file at `path`."""

    def __init__(self, target_isa, quick, title, path):
        self.path = pathlib.Path(path)
        self.machine = {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "isa": target_isa,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self.quick = quick
        self.rows = []
        note = " (--quick: the times mean nothing)" if quick else ""
        print(f"{title} on {self.machine['cpu']}, {os.cpu_count()} cores, {target_isa}{note}")
        print(self._line("name", "shape", "dtype", "thr", "cache", "us", "baseline", "its us", "ratio", "target"))

    @staticmethod
    def _line(name, shape, dtype, threads, cache, value, baseline, baseline_value, ratio, verdict):
        return (
            f"{name:<16} {shape:<34} {dtype:<9} {threads:>3} {cache:<5} {value:>10} {baseline:<28} {baseline_value:>10}"
            f" {ratio:>8}  {verdict}"
        )

    def add(self, row, seconds, baseline, baseline_seconds, target=None, least_seconds=None):
        """`least_seconds`: what the part that cannot be left out takes: the floor of bench/harness.h."""
        ratio = baseline_seconds / seconds
        most = None if least_seconds is None else baseline_seconds / least_seconds
        met = None if target is None else ratio >= (target if most is None else min(target, 0.9 * most))
        verdict = "" if target is None else f">= {target} {'met' if met else 'MISS'}"
        values = (f"{seconds * 1e6:.4g}", baseline, f"{baseline_seconds * 1e6:.4g}", f"{ratio:.3f}")
        print(self._line(row["name"], row["shape"], row["dtype"], row["threads"], row["cache"], *values, verdict), flush=True)
        self.rows.append(
            row
            | {"value": seconds * 1e6, "unit": "us", "baseline": baseline, "baseline_value": baseline_seconds * 1e6}
            | {"ratio": ratio, "target": target, "met": met, "quick": self.quick, "machine": self.machine}
            | ({} if most is None else {"most": most})
        )

    def skip(self, row, baseline, why):
        """Records a baseline without a time."""
        why = " ".join(why.split())[:200]
        print(f"SKIP  {baseline} {row['shape']}: {why}", flush=True)
        nothing = dict.fromkeys(("value", "unit", "baseline_value", "ratio", "target", "met"))
        self.rows.append(row | nothing | {"baseline": baseline, "skipped": why, "quick": self.quick, "machine": self.machine})

    def save(self):
        self.path.write_text(json.dumps(self.rows, indent=1) + "\n")

    def finish(self):
        """Saves, and prints the targets that were missed."""
        self.save()
        targeted = [row for row in self.rows if row["met"] is not None]
        missed = [row for row in targeted if not row["met"]]
        for row in missed:
            print(f"MISS  {row['name']} {row['shape']} {row['cache']}: {row['ratio']:.3f} of {row['baseline']}, target {row['target']}")
        print(f"{len(targeted) - len(missed)} of {len(targeted)} targets met, {len(missed)} missed")
