# SPDX-License-Identifier: Apache-2.0
"""Runs a phasor-server during a `with` block."""

import contextlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import time

START_S = 30
STOP_S = 60


# Below Linux's own range (from 32768), out of which connections and `bind` to port 0 get theirs.
PORTS = range(20000, 32768)


def free_port():
    """A port of 127.0.0.1 that nobody has now, nor gets without asking for it."""
    while True:
        port = random.choice(PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def server(command):
    """Runs `command --listen 127.0.0.1:0`; yields the address; SIGTERM at the end, whose exit status must be 0."""
    with server_process(command) as (address, _):
        yield address


@contextlib.contextmanager
def server_process(command):
    """The same, and the process."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield _address(process, log), process
        except BaseException:
            process.kill()
            raise
        process.send_signal(signal.SIGTERM)
        status = process.wait(STOP_S)
        if status != 0:
            raise RuntimeError(f"after SIGTERM the server ended with status {status}:\n{_text(log)}")


def _address(process, log):
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        found = re.search(r"127\.0\.0\.1:[1-9]\d*", _text(log))
        if found:
            return found[0]
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise RuntimeError(f"the server told no address:\n{_text(log)}")


def _text(log):
    log.seek(0)
    return log.read()
