# SPDX-License-Identifier: Apache-2.0
"""tracing.py BUILD OUT [--quick]: what tracing every call costs callers, whatever the collector does.

One server without tracing and one for each kind of collector: it takes spans, is dead, takes a second
for each export, or restarts all the time. Slices of small calls go to the servers in turns, so that
what else the machine does meets all alike. Prints for each: calls, failed ones, p50 and p99 beside
those without tracing in the same round, spans exported and dropped, and the server's memory. Rows go
to OUT as JSON. --quick shows that it works; its figures mean nothing."""

import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time

import grpc

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests/accept")]
import capacity  # noqa: E402
import running  # noqa: E402
from envoy import read  # noqa: E402

COLLECTORS = ("none", "takes", "dead", "slow", "restarts")
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
# A call that a client makes most often: one small row.
CALL = ["--preset", "timestep-sin-cos", "--dim", "128", "--tokens", "16"]
SPANS_OF_A_CALL = 5  # the call, queue, gather, compute, answer
SETTLE_S = 30  # for the spans that are queued


class Collector(grpc.GenericRpcHandler):
    """Takes OTLP, after `delay` seconds."""

    def __init__(self, port, delay):
        self.delay = delay
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers([self])
        self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.server.start()

    def service(self, handler_call_details):
        if handler_call_details.method == EXPORT:
            return grpc.unary_unary_rpc_method_handler(self.take)
        return None

    def take(self, request, context):
        time.sleep(self.delay)
        return b""

    def stop(self):
        self.server.stop(0).wait()


def restart(port, stopped):
    while not stopped.is_set():
        collector = Collector(port, 0)
        stopped.wait(0.5)
        collector.stop()
        stopped.wait(0.5)


@contextlib.contextmanager
def collector_of(kind, port):
    if kind in ("none", "dead"):
        yield
    elif kind == "restarts":
        stopped = threading.Event()
        thread = threading.Thread(target=restart, args=(port, stopped))
        thread.start()
        yield
        stopped.set()
        thread.join()
    else:
        collector = Collector(port, 1 if kind == "slow" else 0)
        yield
        collector.stop()


class Traced:
    """A server that exports to one kind of collector."""

    def __init__(self, build, kind, port, stack):
        self.kind, self.metrics = kind, running.free_port()
        variables = [f"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{port}", "OTEL_TRACES_SAMPLER=always_on", "OTEL_EXPORTER_OTLP_TIMEOUT=2000"]
        if kind == "none":
            variables = []
        command = ["env", *variables, build / "server/phasor-server", "--threads=1", f"--metrics-listen=127.0.0.1:{self.metrics}"]
        self.address, process = stack.enter_context(running.server_process(command))
        self.pid = process.pid
        self.slices, self.before = [], capacity.memory_mib(self.pid, "VmRSS")

    def page(self):
        return read(f"http://127.0.0.1:{self.metrics}/metrics")

    def call(self, build, seconds):
        out = subprocess.run([build / "client/cli/phasor", "bench", "--server", self.address, *CALL, "--duration", str(seconds), "--json"],
                             check=True, capture_output=True, text=True).stdout  # fmt: skip
        self.slices.append(json.loads(out)["phasor"])

    def row(self, plain):
        page = self.page()
        ratio = {q: statistics.median(mine[f"{q}_ms"] / other[f"{q}_ms"] for mine, other in zip(self.slices, plain.slices)) for q in ("p50", "p99")}
        return {
            "collector": self.kind, "calls": sum(s["calls"] for s in self.slices),
            "failed": sum(e["count"] for s in self.slices for e in s["errors"]),
            **{f"{q}_ms": statistics.median(s[f"{q}_ms"] for s in self.slices) for q in ("p50", "p99")},
            "p50_of_none": ratio["p50"], "p99_of_none": ratio["p99"],
            "exported": metric(page, "phasor_spans_exported_total"), "dropped": metric(page, "phasor_spans_dropped_total"),
            "resident_mib_before": self.before, "resident_mib_after": capacity.memory_mib(self.pid, "VmRSS"),
        }  # fmt: skip


def metric(page, name):
    found = re.search(rf"^{name} (\d+)", page, re.M)
    return int(found[1]) if found else 0


def settled(server):
    """Waits until every span is exported or dropped, as the counters say."""
    calls = sum(s["calls"] for s in server.slices) + len(server.slices)  # each slice begins with a call that is not counted
    deadline = time.monotonic() + SETTLE_S
    while server.kind != "none" and time.monotonic() < deadline:
        page = server.page()
        if metric(page, "phasor_spans_exported_total") + metric(page, "phasor_spans_dropped_total") >= SPANS_OF_A_CALL * calls:
            return
        time.sleep(0.1)


def measure(build, rounds, seconds):
    """A row for each kind of collector."""
    with contextlib.ExitStack() as stack:
        ports = {kind: running.free_port() for kind in COLLECTORS}
        servers = [Traced(build, kind, ports[kind], stack) for kind in COLLECTORS]
        for kind, port in ports.items():
            stack.enter_context(collector_of(kind, port))
        for turn in range(rounds):
            for i in range(len(servers)):
                servers[(i + turn) % len(servers)].call(build, seconds)
        for server in servers:
            settled(server)
        return [server.row(servers[0]) for server in servers]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    rows = measure(given.build, *((2, 0.1) if given.quick else (16, 0.4)))
    print(f"{'collector':10} {'calls':>7} {'failed':>6} {'p50 ms':>7} {'of none':>7} {'p99 ms':>7} {'of none':>7} {'exported':>9} {'dropped':>8} {'MiB':>11}")
    for r in rows:
        print(f"{r['collector']:10} {r['calls']:>7} {r['failed']:>6} {r['p50_ms']:>7.3f} {r['p50_of_none']:>7.2f} {r['p99_ms']:>7.3f} {r['p99_of_none']:>7.2f}"
              f" {r['exported']:>9} {r['dropped']:>8} {r['resident_mib_before']:>5.0f} {r['resident_mib_after']:>5.0f}")  # fmt: skip
    given.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
