# SPDX-License-Identifier: Apache-2.0
"""For tests of programs that use Phasor: a server of this package's own binary.

    from phasor.testing import phasor_server      # a pytest fixture, in conftest.py

    def test_it(phasor_server):
        client = phasor.Client(phasor_server.target)
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from . import _errors
from ._client import Client

_START_S = 30.0
_STOP_S = 60.0
_LOOK_S = 0.02


def program(name: str) -> str:
    """The path of a program of this package, "phasor" or "phasor-server". $PHASOR_PROGRAMS, a
    folder, comes first; then where pip installs scripts; then the PATH. FileNotFoundError: none."""
    folders = [os.environ.get("PHASOR_PROGRAMS"), sysconfig.get_path("scripts")]
    for folder in filter(None, folders):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name}: in none of $PHASOR_PROGRAMS, {folders[1]} and the PATH; pip install phasor-rope")
    return found


class Server:
    """A phasor-server on a Unix socket of its own, from start() to stop(), or during a `with` block.

        with phasor.testing.Server("--log-level", "debug") as server:
            phasor.Client(server.target)

    Args:
        options: of the command line. `--listen` and `--lease-socket` are set; see docs/operations.md.
        program: the path of the binary.

    Attributes:
        target: for Client. pid: of the process.
    """

    def __init__(self, *options: str, program: str | None = None) -> None:
        self._options = options
        self._program = program
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.target = ""

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server does not run; call start()")
        return self._process.pid

    def start(self) -> Server:
        """Starts the server and returns when it serves. RuntimeError: it does not; with its log."""
        self._folder = tempfile.TemporaryDirectory(prefix="phasor-")
        folder = pathlib.Path(self._folder.name)
        self.target = f"unix:{folder}/phasor.sock"
        command = [self._program or program("phasor-server"), "--listen", self.target, "--lease-socket", f"{folder}/lease.sock"]
        with open(folder / "log", "wb") as log:
            self._process = subprocess.Popen([*command, *self._options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            self._wait()
        except BaseException:
            self.kill()
            self._clean()
            raise
        return self

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_S
        with Client(self.target, max_attempts=1) as client:
            while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
                try:
                    if client.health(timeout=1):
                        return
                except (_errors.Unavailable, _errors.DeadlineExceeded):
                    pass
                time.sleep(_LOOK_S)
        raise RuntimeError(f"phasor-server does not serve:\n{self.log()}")

    def log(self) -> str:
        """What the server has printed so far."""
        if self._folder is None:
            return ""
        return (pathlib.Path(self._folder.name) / "log").read_text(errors="replace")

    def stop(self) -> None:
        """Drains the server (SIGTERM). RuntimeError: it ends with an error; with its log."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        status = process.wait(_STOP_S)
        log = self.log()
        self._clean()
        if status != 0:
            raise RuntimeError(f"phasor-server ended with status {status}:\n{log}")

    def kill(self) -> None:
        """Ends the server at once (SIGKILL)."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _clean(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()
        self._clean()


def _fixture() -> Any:
    import pytest

    @pytest.fixture(scope="session")
    def phasor_server() -> Iterator[Server]:
        """A Server for all tests of the session."""
        with Server() as server:
            yield server

    return phasor_server


def __getattr__(name: str) -> Any:
    if name == "phasor_server":  # only programs that use it need pytest
        return _fixture()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
