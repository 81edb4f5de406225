# SPDX-License-Identifier: Apache-2.0
"""faults_test.py BUILD: makes system calls of a real server fail while it is called, stops processes, moves the clock, limits its
memory. During a fault a call may fail, but it never gets wrong numbers; after the fault the server serves again, with the same
process. Prints the rows of docs/reliability.md."""

import contextlib
import errno
import json
import pathlib
import re
import resource
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

from faulty_server import CLI, SERVER, Bench, DidNotStart, Fault, Server, eventually, run

TRIES = 6
MOST_THREADS = 1000
GRPC_READS = "grpc_event_engine::experimental::MemoryAllocator::MakeSlice(grpc_event_engine::experimental::MemoryRequest)"
MOST_REPEATS = 100_000  # of a system call that fails, in half a minute; a loop without a pause makes millions


class Calls:
    """Rotations over new connections."""

    options = ()
    what = "calls succeeded"
    ends_with = (0,)

    def __init__(self, bench, promise):
        self.bench = bench
        self.code = promise.split(",")[0]

    def once(self, server):
        """Whether it succeeds."""
        return self.bench.rotates(server.address)

    def afterwards(self, server):
        """Checks what must hold after the fault."""


class Crowds(Calls):
    """Rotations while 100 calls are under way, for which gRPC starts threads. It may lose one of the calls for ever."""

    options = ("--drain-timeout=2s",)
    ends_with = (0, 1)

    def once(self, server):
        shape = ["--concurrency", "25", "--tokens", "100"]
        crowd = [self.bench.load(server.address, *shape) for _ in range(4)]
        try:
            time.sleep(0.5)
            return self.bench.rotates(server.address)
        finally:
            for caller in crowd:
                caller.kill()
                caller.wait()


class Uploads(Calls):
    """Those that fail have the code with which the promise begins, if it does."""

    def once(self, server):
        done = run(CLI, "tables", "upload", "t", self.bench.table, "--server", server.address, "--timeout", "5")
        said = done.stderr.decode()
        if done.returncode != 0 and self.code.isupper() and self.code not in said:
            raise AssertionError(f"not {self.code}: {said}")
        if str(self.bench.folder) in said:
            raise AssertionError(f"the answer names a path of the server: {said}")
        there = run(CLI, "tables", "list", "--server", server.address).stdout.decode()
        if (done.returncode == 0) != bool(re.search(r"^t\b", there, re.MULTILINE)):
            raise AssertionError(f"status {done.returncode}, and afterwards: {there}")
        return done.returncode == 0

    def afterwards(self, server):
        if left := [path.name for path in (self.bench.folder / "tables").iterdir() if path.name.startswith(".")]:
            raise AssertionError(f"parts of tables stay: {left}")


class Leases(Calls):
    """Calls in memory that the server maps."""

    def once(self, server):
        shape = ["--preset", "rope-interleaved", "--head-dim", "64", "--tokens", "1000", "--duration", "0.3"]
        return run(CLI, "bench", "--shared", "--server", server.address, *shape).returncode == 0


class Reloads(Calls):
    """Of the configuration, by SIGHUP."""

    what = "reloads succeeded"

    def __init__(self, bench, promise):
        super().__init__(bench, promise)
        self.config = bench.folder / "config.txtpb"
        self.config.write_text("threads: 2", encoding="utf-8")
        self.options = (f"--config={self.config}",)

    def once(self, server):
        before = server.text()
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: re.search(rb'"event":"reload', server.text()[len(before) :]))
        return b'"event":"reloaded"' in server.text()[len(before) :]

    def afterwards(self, server):
        assert self.once(server)


class Renewals(Calls):
    """Of the certificate: a new one is put in place of the old one. Nobody sends a signal."""

    what = "renewals succeeded"

    def __init__(self, bench, promise):
        super().__init__(bench, promise)
        self._put("old")
        self.options = (f"--tls-cert={bench.folder / 'server.pem'}", f"--tls-key={bench.folder / 'server.key'}", "--credentials-reload-interval=200ms")

    def _put(self, name):
        for suffix in ("key", "pem"):
            copy = self.bench.folder / f"next.{suffix}"
            shutil.copy(self.bench.folder / f"{name}.{suffix}", copy)
            copy.rename(self.bench.folder / f"server.{suffix}")

    def serves_new(self, server):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.bench.authorities)
        context.set_alpn_protocols(["h2"])
        host, port = server.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), 10) as link, context.wrap_socket(link, server_hostname=host) as tls:
            return ssl.DER_cert_to_PEM_cert(tls.getpeercert(True)).strip() == (self.bench.folder / "new.pem").read_text(encoding="utf-8").strip()

    def once(self, server):
        before = len(server.text())
        self._put("new")
        eventually(lambda: re.search(rb'"event":"credentials (loaded|kept)', server.text()[before:]))
        return self.serves_new(server)

    def afterwards(self, server):
        eventually(lambda: self.serves_new(server))


def system_call(bench, call, error, every, kind, least_bytes, promise):
    """Calls while `call` fails."""
    work = kind(bench, promise)
    server = Server(bench, *work.options)
    if kind is Renewals:
        server.client_options = ["--ca", bench.authorities]
    try:
        assert server.serves_again()
        server.fault.error, server.fault.every, server.fault.least_bytes = error, every, least_bytes
        server.fault.call = call.encode()
        succeeded = sum(work.once(server) for _ in range(TRIES))
        server.fault.call = b""
        failed = server.fault.failed
        if not server.serves_again():
            raise AssertionError(f"does not serve again; alive: {server.alive()}; {server.text()[-500:].decode(errors='replace')}")
        work.afterwards(server)
    finally:
        status = server.end()
    if status not in work.ends_with:
        raise AssertionError(f"after SIGTERM: status {status}")
    if failed > MOST_REPEATS:
        raise AssertionError(f"{failed} system calls failed: the server spins")
    if failed == 0:
        raise AssertionError(f"{call} did not fail even once: the test shows nothing")
    return f"{succeeded} of {TRIES} {work.what}, {failed} system calls failed; serves again"


SYSTEM_CALLS = [
    # system call, errno or 0 for short, one of so many, what is called, promise
    ("accept4", errno.EMFILE, 1, Calls, 0, "no connection; accepts again when there is room"),
    ("accept4", errno.ENOMEM, 2, Calls, 0, "the same"),
    ("accept4", errno.ECONNABORTED, 2, Calls, 0, "the next connection is accepted"),
    ("accept4", errno.EINTR, 2, Calls, 0, "the next connection is accepted"),
    ("recvmsg", errno.EINTR, 2, Calls, 0, "repeated"),
    ("recvmsg", errno.ECONNRESET, 5, Calls, 0, "the connection ends, its calls are UNAVAILABLE"),
    ("recvmsg", 0, 2, Calls, 0, "short reads are continued"),
    ("sendmsg", errno.EPIPE, 5, Calls, 0, "the connection ends"),
    ("sendmsg", 0, 2, Calls, 0, "short writes are continued"),
    ("epoll_wait", errno.EINTR, 2, Calls, 0, "repeated"),
    ("mmap", errno.ENOMEM, 1, Leases, 1 << 16, "the lease is refused"),
    ("mkostemp", errno.ENOSPC, 1, Uploads, 0, "RESOURCE_EXHAUSTED, without a path of the server"),
    ("write", errno.ENOSPC, 1, Uploads, 1000, "RESOURCE_EXHAUSTED, no part of a table stays"),
    ("write", errno.EIO, 1, Uploads, 1000, "INTERNAL, no part of a table stays"),
    ("write", 0, 2, Uploads, 1000, "short writes are continued"),
    ("fsync", errno.EIO, 1, Uploads, 0, "INTERNAL, the old table stays"),
    ("rename", errno.EACCES, 1, Uploads, 0, "INTERNAL, the old table stays"),
    ("open", errno.EMFILE, 1, Uploads, 0, "INTERNAL, the old table stays"),
    ("open", errno.EMFILE, 1, Reloads, 0, "the old configuration stays"),
    ("read", errno.EIO, 1, Reloads, 0, "the old configuration stays"),
    ("read", 0, 1, Reloads, 0, "short reads are continued"),
    ("open", errno.EMFILE, 1, Renewals, 0, "the old certificate stays; afterwards the new one comes by itself"),
    ("memfd_create", errno.EMFILE, 1, Renewals, 0, "the same"),
    ("fopen", errno.EMFILE, 1, Renewals, 0, "the same"),
    ("pthread_create", errno.EAGAIN, 1, Crowds, 0, "the threads that there are serve; the process ends in time, if with status 1"),
]


def threads_at_the_start(bench):
    """Of the threads that a server starts, one after the other cannot be started."""
    server = Server(bench, fault=Fault(call=b"pthread_create", every=1, skip=MOST_THREADS))
    threads = server.fault.calls
    assert server.serves_again() and server.end() == 0
    refused = aborted = served = 0
    for skip in range(threads):
        try:
            server = Server(bench, "--drain-timeout=2s", fault=Fault(call=b"pthread_create", error=errno.EAGAIN, every=MOST_THREADS, skip=skip))
        except DidNotStart as ended:
            status, said = ended.args
            by_us = status == 1 and "threads: no more can be started; raise" in said
            by_grpc = status == -signal.SIGABRT and "Could not create grpc_sync_server worker-thread" in said
            assert by_us or by_grpc, (skip, status, said)
            refused += by_us
            aborted += by_grpc
            continue
        again, status = server.serves_again(), server.end()
        assert again and status in (0, 1), (skip, again, status, server.text()[-300:])
        served += 1
    return f"{threads} starts: {refused} said so, with status 1; {aborted} by an abort of gRPC that says so; {served} served all the same and ended in time"


def clients_without_memory(bench):
    """A client that gets no shared memory says so; others are served."""
    server = Server(bench)
    try:
        for call, error in (("memfd_create", errno.EMFILE), ("ftruncate", errno.EINVAL), ("posix_fallocate", errno.ENOSPC), ("mmap", errno.ENOMEM)):
            environment, fault = bench.faulty(Fault(call=call.encode(), error=error, every=1, least_bytes=1 << 20 if call == "mmap" else 0))
            shape = ["--preset", "rope-interleaved", "--head-dim", "64", "--tokens", "4000", "--duration", "0.2"]
            done = subprocess.run([CLI, "bench", "--shared", "--server", server.address, *shape], env=environment, capture_output=True, timeout=60, check=False)
            said = done.stderr.decode()
            assert done.returncode == 1 and "not shared" in said, (call, done.returncode, said)
            assert fault.failed > 0 and server.serves_again(), call
    finally:
        status = server.end()
    assert status == 0, status
    return "each client said that its memory is not shared; others are served"


def stopped_server(bench):
    server = Server(bench)
    try:
        server.process.send_signal(signal.SIGSTOP)
        late = [CLI, *bench.rope, "--server", server.address, "--timeout", "30", "--output", bench.folder / "late.npy"]
        caller = subprocess.Popen(late, stdout=subprocess.DEVNULL)
        time.sleep(3)
        server.process.send_signal(signal.SIGCONT)
        if caller.wait(60) != 0 or (bench.folder / "late.npy").read_bytes() != bench.right:
            raise AssertionError("the call did not succeed")
    finally:
        status = server.end()
    assert status == 0, status
    return "the call that waited 3 s succeeded"


def stopped_clients(bench):
    server = Server(bench)
    clients = []
    try:
        clients = [bench.load(server.address) for _ in range(8)]
        time.sleep(1)
        for client in clients:
            client.send_signal(signal.SIGSTOP)
        succeeded = sum(bench.rotates(server.address) for _ in range(TRIES))
    finally:
        for client in clients:
            client.kill()
            client.wait()
        status = server.end()
    assert status == 0 and succeeded == TRIES, (status, succeeded)
    return f"{succeeded} of {TRIES} calls of others succeeded"


class Network:
    """Between clients and the server: every piece waits, pieces are small, and each connection is reset after so many bytes."""

    def __init__(self, address, delay_s, piece_bytes, reset_after):
        host, port = address.rsplit(":", 1)
        self.there = (host, int(port))
        self.delay_s, self.piece_bytes, self.reset_after = delay_s, piece_bytes, reset_after
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                here, _ = self.listener.accept()
                there = socket.create_connection(self.there)
                for end in (here, there):  # closing resets, which the other side sees at once
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                for a, b in ((here, there), (there, here)):
                    threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    def _carry(self, source, sink):
        carried = 0
        with contextlib.suppress(OSError):
            while (piece := source.recv(self.piece_bytes)) and carried < self.reset_after:
                time.sleep(self.delay_s)
                sink.sendall(piece)
                carried += len(piece)
        for end in (source, sink):
            end.close()


def bad_network(bench, delay_s, piece_bytes, reset_after, least, most):
    server = Server(bench)
    network = Network(server.address, delay_s, piece_bytes, reset_after)
    try:
        succeeded = sum(bench.rotates(network.address, timeout_s=50) for _ in range(TRIES))
        serves = server.serves_again()
    finally:
        network.listener.close()
        status = server.end()
    assert status == 0 and serves and least <= succeeded <= most, (status, serves, succeeded)
    return f"{succeeded} of {TRIES} calls succeeded; others are served"


def clock_jumps(bench):
    server = Server(bench)
    # Abseil remembers a clock that is read often, after some seconds.
    callers = [bench.load(server.address, "--tokens", "512", "--heads", "8") for _ in range(2)]
    try:
        busy_until = time.monotonic() + 4
        while time.monotonic() < busy_until:
            assert bench.rotates(server.address, 60)
        for hours in (1, -1, 1, -1, 1, -1, 24 * 365, 0):
            server.fault.clock_offset_s = hours * 3600
            if not bench.rotates(server.address, 60):
                raise AssertionError(f"a jump to {hours} h")
        assert server.serves_again()
    finally:
        for caller in callers:
            caller.kill()
            caller.wait()
        status = server.end()
    assert status == 0, status
    return "every call succeeded, at +1 h, -1 h, +1 year and back"


def clock_of_a_client_jumps(bench):
    server = Server(bench)
    environment, fault = bench.faulty()
    calls = subprocess.Popen(
        [CLI, "bench", "--server", server.address, "--preset", "rope-interleaved", "--head-dim", "64", "--duration", "8", "--json"],
        env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for hours in (0, 1, -1, 1, -1, 24 * 365, 0):
            fault.clock_offset_s = hours * 3600
            with contextlib.suppress(subprocess.TimeoutExpired):
                calls.wait(3 if hours == 0 else 0.2)
        result = json.loads(calls.communicate(timeout=60)[0])["phasor"]
    finally:
        calls.kill()
        calls.wait()
        status = server.end()
    assert status == 0 and result["calls"] > 0 and not result["errors"], (status, result)
    return "every call succeeded"


def little_memory(bench):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))

    server = Server(bench, limit=limit)
    callers = []
    try:
        callers = [bench.load(server.address, "--tokens", "20000", "--heads", "8") for _ in range(8)]
        for _ in range(TRIES):
            bench.rotates(server.address)
    finally:
        for caller in callers:
            caller.kill()
            caller.wait()
        status = server.end()
    if status == 0:
        return "stayed up; no wrong numbers"
    log = server.text().decode(errors="replace")
    if status == -signal.SIGSEGV and crashed_in(log) == GRPC_READS:
        return "the process ended where gRPC reads without asking whether it got memory; no wrong numbers"
    if status not in (-signal.SIGABRT, 1):
        raise AssertionError(f"ended with {status}: {log[-1000:]}")
    return "the process ended by abort, as it must without memory; no wrong numbers"


def crashed_in(log):
    """The function, from what fail.c has written."""
    if not (found := re.search(r"crashed in \S+\(\+(0x[0-9a-f]+)\)", log)):
        return None
    return run("addr2line", "--functions", "--demangle", "-e", SERVER, found[1]).stdout.decode().splitlines()[0]


OTHERS = [
    ("`pthread_create`: EAGAIN, once, at the start", "serves, or does not start and says that a thread is missing", threads_at_the_start),
    ("`memfd_create`, `ftruncate`, `posix_fallocate`, `mmap` of a client", "the client has memory of its own, and knows that it is not shared", clients_without_memory),
    ("SIGSTOP of the server for 3 s", "calls wait, and succeed within their deadline", stopped_server),
    ("SIGSTOP of 8 clients in the middle of calls", "others are served", stopped_clients),
    ("network with 5 ms more a piece of 32 KiB", "calls succeed", lambda bench: bad_network(bench, 0.005, 32 << 10, 1 << 40, TRIES, TRIES)),
    ("connections reset after 1 MB", "calls are UNAVAILABLE", lambda bench: bad_network(bench, 0, 64 << 10, 1_000_000, 0, 0)),
    ("wall clock jumps by hours and a year", "no call notices", clock_jumps),
    ("the same at a client", "no call notices", clock_of_a_client_jumps),
    ("address space limited to 700 MiB, 8 large callers", "no wrong numbers; the process may end", little_memory),
]


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(pathlib.Path(folder))
        assert bench.right is not None
        checks = [
            (f"`{call}`: {errno.errorcode[error] if error else 'short'}, 1 of {every}", promise, lambda a=(call, error, every, what, least, promise): system_call(bench, *a))
            for call, error, every, what, least, promise in SYSTEM_CALLS
        ] + [(kind, promise, lambda check=check: check(bench)) for kind, promise, check in OTHERS]
        print("| fault | promised | what happened |\n|---|---|---|")
        for kind, promise, check in checks:
            try:
                happened = check()
            except Exception as error:  # the other faults are tried all the same
                happened = f"FAILED: {type(error).__name__}: {error}"
                failures.append(kind)
            print(f"| {kind} | {promise} | {happened} |", flush=True)
    sys.exit(1 if failures else 0)


main()
