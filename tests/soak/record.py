# SPDX-License-Identifier: Apache-2.0
"""What a server process uses over time: from /proc and from its metrics. Draws it, and says whether memory grew."""

import pathlib
import re
import time
import urllib.request

GAUGES = [
    "phasor_inflight_bytes", "phasor_queued_calls", "phasor_waiting_calls", "phasor_waiting_readers", "phasor_leases",
    "phasor_regions", "phasor_connections", "phasor_tables", "phasor_plan_cache_bytes",
]
# What must be zero when all clients are gone. Tables stay; plans are kept.
BACK_TO_ZERO = GAUGES[:7]
MIB = 1 << 20


class Recorder:
    def __init__(self, pid, metrics_address):
        self.proc = pathlib.Path(f"/proc/{pid}")
        self.metrics = f"http://{metrics_address}/metrics"
        self.began = time.monotonic()
        self.samples = []

    def gauges(self):
        with urllib.request.urlopen(self.metrics, timeout=30) as page:
            text = page.read().decode()
        return {name: float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1]) for name in GAUGES}

    def sample(self):
        status = (self.proc / "status").read_text(encoding="utf-8")
        number = {key: int(re.search(rf"^{key}:\s+(\d+)", status, re.MULTILINE)[1]) for key in ("VmRSS", "Threads")}
        descriptors = sum(1 for _ in (self.proc / "fd").iterdir())
        self.samples.append(
            {
                "seconds": time.monotonic() - self.began,
                "resident_mib": number["VmRSS"] / 1024,
                "threads": number["Threads"],
                "descriptors": descriptors,
                **self.gauges(),
            }
        )
        return self.samples[-1]

    def slope(self):
        """(MiB a minute, its standard error) of resident memory in the second half. Neighbouring samples depend on each
        other, so the error is that of medians of 20 blocks."""
        import numpy as np

        half = self.samples[len(self.samples) // 2 :]
        blocks = np.array_split(np.array([(s["seconds"] / 60, s["resident_mib"]) for s in half]), min(20, len(half)))
        points = np.array([np.median(b, axis=0) for b in blocks])
        (slope, _), covariance = np.polyfit(points[:, 0], points[:, 1], 1, cov=True)
        return float(slope), float(covariance[0, 0] ** 0.5)

    def draw(self, path, title):
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        rows = [
            ("resident memory, MiB", ["resident_mib"], 1),
            ("descriptors, threads, connections", ["descriptors", "threads", "phasor_connections"], 1),
            ("bytes in flight and of plans, MiB", ["phasor_inflight_bytes", "phasor_plan_cache_bytes"], MIB),
            ("queued, waiting, leases, regions, tables", ["phasor_queued_calls", "phasor_waiting_calls", "phasor_leases", "phasor_regions", "phasor_tables"], 1),
        ]
        figure, axes = plt.subplots(len(rows), 1, sharex=True, figsize=(10, 11))
        minutes = [s["seconds"] / 60 for s in self.samples]
        for axis, (label, names, unit) in zip(axes, rows, strict=True):
            for name in names:
                axis.plot(minutes, [s[name] / unit for s in self.samples], label=name, linewidth=0.8)
            axis.set_ylabel(label, fontsize=8)
            axis.set_ylim(bottom=0)
            axis.legend(fontsize=7, loc="upper right")
        axes[0].set_title(title, fontsize=9)
        axes[-1].set_xlabel("minutes")
        figure.tight_layout()
        figure.savefig(path, dpi=90)
