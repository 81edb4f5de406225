# SPDX-License-Identifier: Apache-2.0
"""fleet.py BUILD OUT [--quick] [--replicas N,N] [--ways WAY,WAY] [--scenarios NAME,NAME] [--load L]

A fleet on one machine: 1 to 16 servers of one computing thread each, behind client-side balancing
and behind Envoy with several policies. The load is open-loop, so slow answers do not slow it, with
sizes of a heavy tail. While it runs, replicas are rolled, killed, slowed or overloaded. For each
run: goodput, latency, imbalance, repetitions, and the processor time that was used beside what
docs/capacity.md predicts. Its parameters are measured in the same seconds on servers beside the
fleet, so the comparison does not depend on what else the machine does. Rows go to OUT as JSON.
--quick shows that it works; its figures mean nothing. --load: the part of the machine that the
fleet and its clients should take, 0.12."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests/accept")]
import capacity  # noqa: E402
import envoy  # noqa: E402
import running  # noqa: E402

# Tokens of a call, and its part of all calls: a size 16 times as large is 8 times as rare.
CLASSES = ((1, 512), (16, 64), (256, 8), (2048, 1))
SERVER = ["--threads=1", "--max-inflight-bytes=256MiB", "--pool-bytes=16MiB", "--drain-delay=3s", "--drain-timeout=20s",
          "--max-connections-per-peer=1024", "--max-metadata-bytes=16KiB"]  # fmt: skip
# Text of deploy/envoy/envoy.yaml that a way changes. Weights: those of someone who knows replica 0.
ROUND_ROBIN = ("lb_policy: LEAST_REQUEST", "lb_policy: ROUND_ROBIN")
WAYS = {
    "client": None,
    "envoy-least-request": [],
    "envoy-round-robin": [ROUND_ROBIN],
    "envoy-weighted": [ROUND_ROBIN],
    "envoy-no-ejection": [("consecutive_local_origin_failure: 3", "enforcing_consecutive_local_origin_failure: 0")],
    "envoy-no-retries": [("num_retries: 2", "num_retries: 0")],
}
SLOW_WEIGHT = (1, 5)  # of replica 0, and of the others
# Sizes of the fleets that each scenario disturbs.
DISTURBED = {"roll": (4,), "kill": (4, 16), "slow": (4, 16), "overloaded": (4, 16)}
BALANCED = ("client", "envoy-least-request", "envoy-round-robin")  # the ways of every scenario
LEAST_CALLS = 6  # of each size in a run that the servers beside the fleet get, to have a mean
START_S, STOP_S, CALL_S = 60, 60, 10
WARM_S = 0.2  # for each size and server
TRIES = 4  # of a run


class Replica:
    """A server on a port that it keeps when it is started again."""

    def __init__(self, build, folder, number):
        self.build, self.log = build, f"{folder}/replica{number}.log"
        self.port, self.metrics = running.free_port(), running.free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.before = {"calls": 0, "unavailable": 0, "cpu": 0.0}  # of processes that have ended
        self.last = dict(self.before)
        self.start()

    def start(self):
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [self.build / "server/phasor-server", *SERVER, f"--listen={self.address}", f"--metrics-listen=127.0.0.1:{self.metrics}"],
                stdout=log, stderr=log)  # fmt: skip
        self.looked = 0.0  # processor seconds that reading its counters cost it
        wait_for(lambda: '"serving"' in pathlib.Path(self.log).read_text(encoding="utf-8"), f"{self.log}: it does not serve")

    def stop(self, how):
        """Ends the process; what it had counted shortly before is kept."""
        self.look()
        self.process.send_signal(how)
        self.process.wait(STOP_S)
        for name, value in self.last.items():
            self.before[name] += value
        self.last = dict.fromkeys(self.last, 0)

    def look(self):
        """Reads the counters of this process, and its processor time but for what that costs."""
        before = capacity.cpu_seconds(self.process.pid)
        text = envoy.read(f"http://127.0.0.1:{self.metrics}/metrics")
        now = capacity.cpu_seconds(self.process.pid)
        self.looked += now - before
        self.last = counters(text) | {"cpu": now - self.looked}

    def totals(self):
        return {name: self.before[name] + self.last[name] for name in self.last}


def counters(text):
    """Calls that a replica has answered with OK, and calls that it refused, from its metrics."""
    found = {"calls": 0, "unavailable": 0}
    line = r'^grpc_server_call_duration_seconds_count\{grpc_method="phasor\.v1\.[^"]*",grpc_status="(\w+)"\} (\d+)'
    for status, count in re.findall(line, text, re.M):
        if status == "OK":
            found["calls"] += int(count)
        elif status == "UNAVAILABLE":
            found["unavailable"] += int(count)
    return found


def wait_for(holds, otherwise):
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if holds():
            return
        time.sleep(0.02)
    raise RuntimeError(otherwise)


# --- the load -------------------------------------------------------------------------------------


def rates(costs, cores):
    """Calls per second of each class, so that the classes' parts hold and the costs come to `cores`."""
    whole = sum(part * costs[tokens] for tokens, part in CLASSES)
    return {tokens: part * cores / whole for tokens, part in CLASSES}


class Load:
    """A client for each class, with its own rate: {tokens: (address, calls per second)}."""

    def __init__(self, build, wanted, seconds, attempts):
        flags = [*capacity.ROPE, "--duration", str(seconds), "--timeout", str(CALL_S), "--attempts", str(attempts), "--json"]
        self.clients = {}
        for tokens, (target, rate) in wanted.items():
            # More threads than calls can be under way, unless answers take seconds.
            threads = max(4, min(64, round(rate)))
            self.clients[tokens] = subprocess.Popen(
                [build / "client/cli/phasor", "bench", "--server", target, *flags, "--tokens", str(tokens), "--rate", f"{rate:.3f}",
                 "--concurrency", str(threads)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip

    def reports(self):
        """Waits for the clients; their reports by class."""
        reports = {}
        for tokens, client in self.clients.items():
            out, errors = client.communicate()
            if not out:
                raise RuntimeError(f"phasor bench: {errors}")
            reports[tokens] = json.loads(out)
        return reports


def measured_costs(build, replica, seconds):
    """Processor seconds of a call of each class, alone."""
    return {t: capacity.measure(build, replica.process.pid, replica.address, capacity.ROPE, t, seconds)[1] for t, _ in CLASSES}


def warm(build, replicas):
    """Has each server answer each size: a new process compiles the spec and takes its memory first."""
    for replica in replicas:
        measured_costs(build, replica, WARM_S)


class Beside:
    """Servers beside a fleet: one for each class, and an idle one. They give the model its parameters
    for the same seconds: what other programs do to the caches and the clock, they do to all."""

    def __init__(self, build, folder, wanted, count, seconds):
        self.idle = Replica(build, folder, "idle")
        self.servers = {tokens: Replica(build, folder, f"beside{tokens}") for tokens, _ in CLASSES}
        warm(build, self.servers.values())
        self.begun, self.start = self.cpu(), time.monotonic()
        # What one replica of the fleet gets, because a call costs more where calls are rarer.
        rates = {tokens: max(rate / count, LEAST_CALLS / seconds) for tokens, rate in wanted.items()}
        self.load = Load(build, {t: (self.servers[t].address, rate) for t, rate in rates.items()}, seconds, 1)

    def cpu(self):
        return {name: capacity.cpu_seconds(r.process.pid) for name, r in {None: self.idle, **self.servers}.items()}

    def model(self):
        """(seconds a second of an idle server, seconds a call, seconds a byte)"""
        reports, elapsed = self.load.reports(), time.monotonic() - self.start
        used = {name: now - self.begun[name] for name, now in self.cpu().items()}
        points = []
        for tokens, report in reports.items():
            points.append((report["bytes_per_call"], max(used[tokens] - used[None], 1e-9) / max(report["phasor"]["calls"], 1)))
        return (used[None] / elapsed, *capacity.fit(points))

    def stop(self):
        for replica in (self.idle, *self.servers.values()):
            replica.process.kill()
            replica.process.wait()


# --- what happens meanwhile -----------------------------------------------------------------------


def steady(fleet, build, stopped):
    stopped.wait()


def roll(fleet, build, stopped):
    """Each replica is drained and started again, one after another."""
    for replica in fleet:
        if stopped.wait(1):
            return
        replica.stop(signal.SIGTERM)
        replica.start()


def kill(fleet, build, stopped):
    """One replica is killed, and is back after two seconds."""
    if not stopped.wait(1):
        fleet[0].stop(signal.SIGKILL)
        stopped.wait(2)
        fleet[0].start()


def slow(fleet, build, stopped):
    """One replica stands still for 80 of every 100 ms, as with a fifth of the others' processor."""
    while not stopped.is_set():
        fleet[0].process.send_signal(signal.SIGSTOP)
        stopped.wait(0.08)
        fleet[0].process.send_signal(signal.SIGCONT)
        stopped.wait(0.02)


def overloaded(fleet, build, stopped):
    """Another program calls such a slow replica with more bytes at a time than its budget."""
    other = subprocess.Popen(
        [build / "client/cli/phasor", "bench", "--server", fleet[0].address, *capacity.ROPE, "--tokens", "4096", "--concurrency", "8",
         "--duration", "3600", "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    slow(fleet, build, stopped)
    other.kill()
    other.wait()


SCENARIOS = {f.__name__: f for f in (steady, roll, kill, slow, overloaded)}


# --- one run --------------------------------------------------------------------------------------


@contextlib.contextmanager
def fleet_of(build, folder, count):
    fleet = []
    try:
        for number in range(count):
            fleet.append(Replica(build, folder, number))
        yield fleet
    finally:
        for replica in fleet:
            replica.process.kill()
            replica.process.wait()


@contextlib.contextmanager
def way_to(way, folder, fleet):
    """The address that the clients call, and where Envoy's counters are."""
    if WAYS[way] is None:
        yield "ipv4:" + ",".join(replica.address for replica in fleet), None
        return
    changes = list(WAYS[way])
    if way == "envoy-weighted":
        for i, replica in enumerate(fleet):
            endpoint = f"port_value: {replica.port}}}}}}}"
            changes.append((endpoint, f"{endpoint}\n                load_balancing_weight: {SLOW_WEIGHT[min(i, 1)]}"))
    with envoy.deployed(folder, [replica.address for replica in fleet], changes) as (admin, plain, _):
        healthy = f"http://127.0.0.1:{admin}/clusters"
        wait_for(lambda: envoy.read(healthy).count("health_flags::healthy") > len(fleet), "Envoy finds no healthy replicas")
        yield f"ipv4:127.0.0.1:{plain}", admin


def envoy_retries(admin):
    return int(re.search(r"^cluster\.phasor\.upstream_rq_retry: (\d+)", envoy.read(f"http://127.0.0.1:{admin}/stats"), re.M)[1])


def run(build, way, scenario, count, wanted, seconds):
    """One row of the result."""
    # Callers of a proxy repeat nothing, so that what the proxy lets through shows.
    attempts = 3 if WAYS[way] is None else 1
    with tempfile.TemporaryDirectory() as folder, fleet_of(build, folder, count) as fleet, way_to(way, folder, fleet) as (target, admin):
        if scenario == "steady":
            warm(build, fleet)
        beside = Beside(build, folder, wanted, count, seconds) if scenario == "steady" else None
        for replica in fleet:
            replica.look()
        begun = [replica.totals() for replica in fleet]
        stopped = threading.Event()
        happening = threading.Thread(target=SCENARIOS[scenario], args=(fleet, build, stopped))
        happening.start()
        try:
            reports = Load(build, {tokens: (target, rate) for tokens, rate in wanted.items()}, seconds, attempts).reports()
            model = beside.model() if beside else None
        finally:
            stopped.set()
            happening.join()
            if beside:
                beside.stop()
        for replica in fleet:
            replica.look()
        used = [{name: value - begun[i][name] for name, value in replica.totals().items()} for i, replica in enumerate(fleet)]
        retries = envoy_retries(admin) if admin else None
    return row(way, scenario, count, reports, used, retries, model)


class Standstill:
    """Notes how long this program got no processor at a time: then the machine was not the fleet's."""

    def __init__(self):
        self.longest, self.ended = 0.0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        before = time.monotonic()
        while not self.ended.wait(0.05):
            self.longest, before = max(self.longest, time.monotonic() - before), time.monotonic()

    def stop(self):
        self.ended.set()
        self.thread.join()
        return self.longest


def undisturbed_run(*arguments):
    """The row of a run; made again if this program stood still for a second meanwhile."""
    for _ in range(TRIES):
        watch, result = Standstill(), None
        try:
            result = run(*arguments)
        except RuntimeError as error:
            print(error, file=sys.stderr)
        longest = watch.stop()
        if result and longest < 1:
            return result
        print(f"made again: stood still for {longest:.1f} s", file=sys.stderr)
    raise RuntimeError(f"{arguments[1:4]}: the machine stops programs")


def row(way, scenario, count, reports, used, retries, model):
    """What is reported of a run: `used` is what each replica counted."""
    done = {tokens: r["phasor"]["calls"] for tokens, r in reports.items()}
    seconds = max(r["phasor"]["seconds"] for r in reports.values())
    predicted = None
    if model:
        idle, a, b = model
        predicted = count * idle * seconds + sum(calls * (a + b * reports[tokens]["bytes_per_call"]) for tokens, calls in done.items())
    cpu, calls = sum(u["cpu"] for u in used), [u["calls"] for u in used]
    failed = {}
    for report in reports.values():
        for error in report["phasor"]["errors"]:
            failed[error["code"]] = failed.get(error["code"], 0) + error["count"]
    return {
        "way": way, "scenario": scenario, "replicas": count, "seconds": seconds,
        "offered_calls_per_second": sum(r["rate"] for r in reports.values()),
        "goodput_calls_per_second": sum(done.values()) / seconds,
        "goodput_bytes_per_second": sum(calls_ * reports[t]["bytes_per_call"] for t, calls_ in done.items()) / seconds,
        "failed": failed, "unsent": sum(r["phasor"]["unsent"] for r in reports.values()),
        "latency_ms": {str(t): {q: r["phasor"][f"{q}_ms"] for q in ("p50", "p99", "p999", "max")} for t, r in reports.items()},
        "imbalance": max(calls) * count / sum(calls) if sum(calls) else None,  # of the busiest replica, over the mean
        "refused": sum(u["unavailable"] for u in used), "envoy_retries": retries,
        "cpu_seconds": cpu, "predicted_cpu_seconds": predicted,
        "model": model, "measured_of_predicted": cpu / predicted if predicted else None,
    }  # fmt: skip


def show(r):
    p99 = " ".join(f"{tokens}:{q['p99']:.1f}" for tokens, q in r["latency_ms"].items())
    failed = sum(r["failed"].values())
    print(f"{r['way']:20} {r['scenario']:10} {r['replicas']:>3}  {r['goodput_calls_per_second']:>7.0f} of {r['offered_calls_per_second']:<7.0f}"
          f" {failed:>6} {r['unsent']:>6} {r['imbalance'] or 0:>9.2f} {r['refused']:>7} {r['envoy_retries'] if r['envoy_retries'] is not None else '-':>7}"
          f" {r['measured_of_predicted'] or 0:>9.2f}  {p99}", flush=True)  # fmt: skip


def runs(given):
    """(replicas, scenario, way) of each run."""
    for count in given.replicas:
        for scenario in given.scenarios:
            if scenario != "steady" and count not in DISTURBED[scenario]:
                continue
            every = count == 4 and scenario not in ("steady", "roll")
            for way in given.ways or (WAYS if every else BALANCED):
                yield count, scenario, way


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--replicas", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8, 16])
    parser.add_argument("--ways", type=lambda text: text.split(","))
    parser.add_argument("--scenarios", type=lambda text: text.split(","), default=list(SCENARIOS))
    parser.add_argument("--load", type=float, default=0.12)
    given = parser.parse_args()
    if given.quick:
        given.replicas, given.load = [4], 0.05
    if not envoy.BINARY.exists():
        print("SKIP: Envoy: build/.venv/bin/envoy is not installed; ./dev test installs it")
        given.ways = ["client"]
    with contextlib.suppress(OSError):  # above other programs, which needs root
        os.setpriority(os.PRIO_PROCESS, 0, -10)
        pathlib.Path("/proc/self/autogroup").write_text("-10", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, fleet_of(given.build, folder, 1) as fleet:
        costs = measured_costs(given.build, fleet[0], 0.3 if given.quick else 2)
    # Clients need about as much as servers.
    wanted = rates(costs, given.load * len(os.sched_getaffinity(0)) / 2)
    print(f"{'way':20} {'scenario':10} {'n':>3}  {'calls/s':>7}    {'offered':7} {'failed':>6} {'unsent':>6} {'imbalance':>9} {'refused':>7}"
          f" {'retries':>7} {'cpu/model':>9}  p99 in ms by tokens")  # fmt: skip
    rows = []
    for count, scenario, way in runs(given):
        # A roll takes as long as its drains. One of 16 replicas gets a call of 2048 tokens in 16 s.
        seconds = 3 if given.quick else {"roll": 6 * count, "steady": 96}.get(scenario, 12)
        rows.append(undisturbed_run(given.build, way, scenario, count, wanted, seconds))
        show(rows[-1])
    given.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
