# SPDX-License-Identifier: Apache-2.0
"""soak.py BUILD OUT [MINUTES [RATE]]: a server process under mixed traffic of several client processes, in the middle of kills,
reloads and rotated certificates. RATE: calls a second of all clients together; as many as they can unless given. Every answer is
checked. Writes OUT/soak.json and OUT/soak.png. Exit status 1: the server
ended, an answer was wrong, memory grew, or a gauge did not go back to zero."""

import collections
import contextlib
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from record import BACK_TO_ZERO, Recorder

HERE = pathlib.Path(__file__).resolve().parent
CLIENTS = 6
KILL_EVERY_S, RELOAD_EVERY_S, ROTATE_EVERY_S = 5, 7, 11
BUDGETS = ["64MiB", "16MiB", "256MiB"]
DRAINED_WITHIN_S = 60
GROWTH_MIB_A_MINUTE = 1.0  # of resident memory, beside what the noise explains


class Certificates:
    """An authority and a server certificate that it issues anew, renamed into place as tools that rotate do."""

    def __init__(self, folder):
        self.folder = folder
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=ca",
                      "-keyout", folder / "ca.key", "-out", folder / "ca.pem")  # fmt: skip
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1", encoding="utf-8")
        self.rotate()

    def rotate(self):
        new = self.folder / "new"
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=server",
                      "-keyout", new.with_suffix(".key"), "-out", new.with_suffix(".csr"))  # fmt: skip
        self._openssl("x509", "-req", "-in", new.with_suffix(".csr"), "-CA", self.folder / "ca.pem", "-CAkey", self.folder / "ca.key",
                      "-CAcreateserial", "-days", "1", "-out", new.with_suffix(".pem"), "-extfile", self.folder / "names")  # fmt: skip
        for suffix in (".key", ".pem"):
            new.with_suffix(suffix).rename(self.folder / f"server{suffix}")

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Server:
    def __init__(self, binary, folder):
        self.config = folder / "config.txtpb"
        self.set_budget(BUDGETS[0])
        self.log = folder / "server.log"
        tables = folder / "tables"
        tables.mkdir()
        self.lease_socket = folder / "lease.sock"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [binary, f"--config={self.config}", "--listen=127.0.0.1:0", f"--listen=unix:{folder / 'grpc.sock'}", "--metrics-listen=127.0.0.1:0",
                 f"--tls-cert={folder / 'server.pem'}", f"--tls-key={folder / 'server.key'}", "--credentials-reload-interval=1s",
                 f"--lease-socket={self.lease_socket}", "--shared-memory", f"--tables-dir={tables}", "--pool-bytes=64MiB",
                 "--shared-memory-lease=10s", "--max-connection-age=20s", "--max-connection-age-grace=5s"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # fmt: skip
        self.targets = [self._said(r"(127\.0\.0\.1:\d+)"), f"unix:{folder / 'grpc.sock'}"]
        self.metrics = self._said(r'"metrics_listeners":\["(127\.0\.0\.1:\d+)')

    def _said(self, pattern):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := re.search(pattern, self.log.read_text(encoding="utf-8")):
                return found[1]
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start:\n{self.log.read_text(encoding='utf-8')}")

    def set_budget(self, budget):
        new = self.config.with_suffix(".new")
        new.write_text(f"max_inflight_bytes: '{budget}'\n", encoding="utf-8")
        new.rename(self.config)

    def reload(self, budget):
        self.set_budget(budget)
        self.process.send_signal(signal.SIGHUP)


class Clients:
    """Client processes, and what they say."""

    def __init__(self, server, folder, rate):
        self.server, self.ca, self.rate = server, folder / "ca.pem", rate
        self.seeds = random.Random(1)
        self.outcomes = collections.Counter()
        self.wrong = []
        self.processes, self.readers = [], []
        for _ in range(CLIENTS):
            self._start()

    def _start(self):
        target = self.server.targets[len(self.processes) % len(self.server.targets)]
        command = [sys.executable, HERE / "client.py", target, self.ca, self.server.lease_socket, self.seeds.getrandbits(60), self.rate / CLIENTS]
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        reader.start()
        self.processes.append(process)
        self.readers.append(reader)

    def _read(self, process):
        for line in process.stdout:
            kind, how = line.rstrip("\n").split(" ", 1)
            self.outcomes[f"{kind} {how.split(':')[0] if how.startswith('WRONG') else how}"] += 1
            if how.startswith("WRONG"):
                self.wrong.append(line.strip())
        if process.wait() not in (0, -signal.SIGKILL):
            self.wrong.append(f"a client ended by itself: {process.stderr.read()[-2000:]}")

    def replace_one(self):
        victim = self.seeds.randrange(len(self.processes))
        self.processes.pop(victim).kill()
        self._start()

    def stop(self):
        for process in self.processes:
            process.kill()
        for reader in self.readers:
            reader.join(30)


def soak(server, certificates, clients, recorder, seconds):
    """Makes trouble until the time is up or the server has ended."""
    due = {clients.replace_one: KILL_EVERY_S, certificates.rotate: ROTATE_EVERY_S}
    reloads = 0
    start = time.monotonic()
    next_at = {action: start + every for action, every in due.items()}
    next_reload = start + RELOAD_EVERY_S
    while time.monotonic() < start + seconds and server.process.poll() is None:
        recorder.sample()
        for action, every in due.items():
            if time.monotonic() >= next_at[action]:
                next_at[action] += every
                action()
        if time.monotonic() >= next_reload:
            next_reload += RELOAD_EVERY_S
            reloads += 1
            server.reload(BUDGETS[reloads % len(BUDGETS)])
        time.sleep(1)


def drained(recorder):
    """The gauges that are not back to zero."""
    deadline = time.monotonic() + DRAINED_WITHIN_S
    while True:
        sample = recorder.sample()
        left = {name: sample[name] for name in BACK_TO_ZERO if sample[name] != 0}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(1)


def judge(server, clients, recorder):
    problems = list(clients.wrong[:20])
    if server.process.poll() is not None:
        return problems + [f"the server ended with status {server.process.returncode}"]
    if left := drained(recorder):
        problems.append(f"not back to zero after {DRAINED_WITHIN_S} s: {left}")
    server.process.send_signal(signal.SIGTERM)
    if (status := server.process.wait(120)) != 0:
        problems.append(f"after SIGTERM the server ended with status {status}")
    return problems


def main():
    build, out = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    minutes = float(sys.argv[3]) if len(sys.argv) > 3 else 120
    rate = float(sys.argv[4]) if len(sys.argv) > 4 else 0
    folder = out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    certificates = Certificates(folder)
    server = Server(build / "server/phasor-server", folder)
    recorder = Recorder(server.process.pid, server.metrics)
    clients = Clients(server, folder, rate)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            soak(server, certificates, clients, recorder, minutes * 60)
        slope, error = recorder.slope()
        clients.stop()
        problems = judge(server, clients, recorder)
    finally:
        clients.stop()
        server.process.kill()
    if slope > GROWTH_MIB_A_MINUTE + 2 * error:
        problems.append(f"resident memory grew by {slope:.2f} +- {error:.2f} MiB a minute")
    calls = sum(clients.outcomes.values())
    summary = {
        "minutes": minutes, "calls": calls, "slope_mib_a_minute": round(slope, 3), "slope_error": round(error, 3),
        "largest_resident_mib": max(s["resident_mib"] for s in recorder.samples), "outcomes": dict(sorted(clients.outcomes.items())), "problems": problems,
    }  # fmt: skip
    (out / "soak.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    recorder.draw(out / "soak.png", f"{minutes:g} minutes, {calls} calls, {CLIENTS} client processes; memory {slope:+.2f} +- {error:.2f} MiB a minute")
    print(json.dumps(summary, indent=1))
    sys.exit(1 if problems else 0)


main()
