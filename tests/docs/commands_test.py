# SPDX-License-Identifier: Apache-2.0
"""Runs the command blocks of the documentation: `commands_test.py [PAGE...]`, all pages when none is named. $PHASOR_BUILD: the
build folder.

One shell runs a page, in a scratch folder that looks like a checkout with a release build. A server that the page
starts runs until the page starts another one or ends; a page that calls 127.0.0.1:50051 before it starts one gets one. Ports
and folders of the page (50051, /run/phasor, ...) are replaced by free ones. Every statement must end with the status that
the page says, 0 if it says none, and print what the page shows below it. What cannot run here is counted, with the reason:
see reason_not_to_run, and blocks.py for what an author can say."""

import functools
import os
import pathlib
import re
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import blocks

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/accept")]
import running

PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/*.md", "client/**/*.md", "bench/**/*.md", "deploy/**/*.md")
GUARD_S = 300  # of one statement; only reached when something hangs
PORTS = ("50051", "50052", "9464")
FOLDERS = ("/run/phasor", "/etc/phasor", "/var/lib/phasor", "/opt/phasor", "/tmp")
LOCAL = r"(?:127\.0\.0\.1|localhost|\[::1\]|0\.0\.0\.0|(?<![\w./-])phasor)"

# Pattern of a statement -> why it is not run. The first that matches counts.
NOT_RUN = (
    (r"^\./dev help\b", None),
    (r"^\./dev\b", "./dev: compiles, runs for minutes or installs packages"),
    (r"^(docker|podman)\b", "needs a container engine"),
    (r"^(helm|kubectl)\b", "needs a cluster"),
    (r"^(sudo|systemctl|apt|apt-get)\b", "changes the machine"),
    (r"^pip\b", "downloads packages"),
    (r"^git clone\b", "downloads"),
    (r"gpu-test", "needs a GPU"),
    (r"\bphasor top\b(?!.*--(once|count))", "runs until it is interrupted"),
    (r"\bphasor top\b(?!.*--metrics)", "reads a fixed port"),
)
TOOLS = ("curl", "grpcurl", "jq", "openssl", "perf_analyzer", "cmake")


def reason_not_to_run(command):
    plain = blocks.without_comments(command).strip()
    for pattern, reason in NOT_RUN:
        if re.search(pattern, plain):
            return reason
    stands_for = blocks.placeholder(command)
    if stands_for:
        return f"{stands_for} stands for something of the reader's"
    other = re.search(r"(?<![\w./@:-])(?!(?:ipv4|ipv6|unix|dns|sha256|URI|DNS|IP):)([a-z][\w.-]*):(?:\d{4,5})\b", plain)
    if other and other[1] not in ("localhost", "phasor"):
        return f"calls the host {other[1]}"
    missing = [tool for tool in TOOLS if re.search(rf"(^|[|;&(]\s*){tool}\b", plain) and not shutil.which(tool)]
    if missing:
        return f"{missing[0]} is not installed"
    if re.match(r"([A-Z_]+=\S+ )*python3?\b", plain) and python() == sys.executable:
        return "the Python packages of tests/oip are not installed"
    return None


@functools.cache
def python():
    """The interpreter with tritonclient and grpcio-tools that the tests of tests/oip install; else our own."""
    theirs = ROOT / "build/.venv-oip/bin/python"
    has = theirs.exists() and subprocess.run([theirs, "-c", "import grpc_tools, tritonclient.grpc"], capture_output=True, check=False)
    return str(theirs) if has and has.returncode == 0 else sys.executable


def is_server(command):
    program = blocks.without_comments(command).split()
    program = [word for word in program if not re.match(r"^[A-Z_]+=", word)][:1]
    flags = r"--(help|version|check-config|print-config)\b"
    return bool(program) and program[0].endswith("phasor-server") and not re.search(flags, command)


class Shell:
    """A bash that keeps its folder, variables and functions from one statement to the next."""

    def __init__(self, folder, environment):
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip

    def run(self, statement):
        """(exit status, output)."""
        mark = secrets.token_hex(8)
        self._bash.stdin.write(f"{{ {statement}\n}} </dev/null 2>&1\nprintf '\\n%s %s\\n' {mark} $?\n".encode())
        self._bash.stdin.flush()
        output, end = b"", re.compile(rf"\n{mark} (\d+)\n$".encode())
        deadline = time.monotonic() + GUARD_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._bash.stdout, selectors.EVENT_READ)
            while not (found := end.search(output)):
                if not selector.select(max(0, deadline - time.monotonic())):
                    raise RuntimeError(f"not finished after {GUARD_S} s")
                read = os.read(self._bash.stdout.fileno(), 65536)
                if not read:
                    raise RuntimeError("the shell has ended")
                output += read
        return int(found[1]), output[: found.start()].decode(errors="replace").removesuffix("\n")

    def close(self):
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()


class Page:
    """Runs the blocks of one page."""

    def __init__(self, path, build, scratch):
        self.path, self.build, self.scratch = path, build, scratch
        self.ran, self.not_run, self.errors = 0, {}, []
        self.server, self.log = None, None
        self._make_scratch()
        self.replaced = {port: str(running.free_port()) for port in PORTS}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PHASOR_")}
        environment["PATH"] = f"{scratch}/bin:{environment['PATH']}"
        environment["PHASOR_LISTEN"] = f"127.0.0.1:{self.replaced['50051']}"
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        self.environment = environment
        self.shell = Shell(scratch / "checkout", environment)

    def _make_scratch(self):
        checkout, programs = self.scratch / "checkout", self.scratch / "bin"
        for folder in (checkout / "build", programs, *(self.scratch / f[1:] for f in FOLDERS)):
            folder.mkdir(parents=True)
        (checkout / "build/release").symlink_to(self.build)
        for entry in ROOT.iterdir():
            if entry.name not in ("build", ".git"):
                (checkout / entry.name).symlink_to(entry)
        (programs / "phasor").symlink_to(self.build / "client/cli/phasor")
        (programs / "phasor-server").symlink_to(self.build / "server/phasor-server")
        for name in ("python", "python3"):  # a link would lose the packages beside it
            (programs / name).write_text(f'#!/bin/sh\nexec {python()} "$@"\n', encoding="utf-8")
            (programs / name).chmod(0o755)

    def here(self, text):
        """With the ports and folders of this run. The host `phasor` is this one."""
        text = re.sub(r"(?<![\w./-])phasor:50051\b", "localhost:50051", text)
        for port, free in self.replaced.items():
            text = re.sub(rf"(?<=:){port}\b", free, text)
        folders = "|".join(map(re.escape, FOLDERS))
        return re.sub(rf"(?<![\w./])({folders})(?=/|\b)", lambda found: str(self.scratch) + found[1], text)

    def there(self, text):
        """As the page would show it."""
        text = text.replace(str(self.scratch) + "/", "/")
        for port, free in self.replaced.items():
            text = re.sub(rf"(?<=:){free}\b", port, text)
        return text

    def run(self, text):
        found = blocks.blocks(text)
        for number, block in enumerate(found):
            try:
                if block.is_commands():
                    output = found[number + 1] if number + 1 < len(found) and found[number + 1].is_output() else None
                    self._run_block(block, output)
                else:
                    self._keep_file(block)
            except (RuntimeError, OSError) as error:
                self._fail(block.line, block.text, str(error))
                break
        self._stop_server()
        self.shell.close()

    def _run_block(self, block, output):
        steps = blocks.console(block) or [(statement, None) for statement in blocks.statements(block.text, self._is_complete)]
        if "not run" in block.marks:
            for _ in steps:
                self._skip(block.marks["not run"])
            return
        for command in block.marks.get("first", []):
            if is_server(command):
                self._start_server(command)
            else:
                self._run_statement(block.line, command, 0)
        last = None
        for number, (command, shown) in enumerate(steps):
            is_last = number == len(steps) - 1
            printed = self._run_step(block, command, int(block.marks.get("exit status", 0)) if is_last else 0)
            last = printed if is_last else last
            if shown is not None and printed is not None:
                self._compare(block.line, command, shown, printed, "numbers vary" in block.marks)
        if output is not None and last is not None and steps:
            self._compare(output.line, steps[-1][0], output.text, last, "numbers vary" in output.marks)

    def _run_step(self, block, command, status):
        """What it printed, or None if it did not run."""
        reason = reason_not_to_run(command)
        if reason:
            self._skip(reason)
            return None
        self.ran += 1
        if is_server(command):
            self._start_server(command)
            return None
        return self._run_statement(block.line, command, status)

    def _run_statement(self, line, command, status):
        if self.server is None and re.search(LOCAL + ":50051", command) and "--listen" not in command:
            self._start_server("phasor-server --listen 127.0.0.1:50051")
        got, printed = self.shell.run(self.here(command))
        printed = self.there(printed)
        if got != status:
            self._fail(line, command, f"exit status {got}, not {status}; it printed:\n{printed}")
            return None
        return printed

    def _compare(self, line, command, expected, printed, numbers_vary):
        difference = blocks.differs(expected, printed, numbers_vary)
        if difference:
            self._fail(line, command, difference)

    def _keep_file(self, block):
        """A block that begins with `# /etc/phasor/NAME` is that file; a configuration must be one that a server takes."""
        name = re.match(r"# (/etc/phasor/[\w.-]+)\s*$", block.text.split("\n")[0])
        if not name:
            return
        file = pathlib.Path(self.here(name[1]))
        file.write_text(self.here(block.text) + "\n", encoding="utf-8")
        if file.suffix in (".txtpb", ".json"):
            self.ran += 1
            self._run_statement(block.line, f"phasor-server --check-config --config {name[1]}", 0)

    def _start_server(self, command):
        self._stop_server()
        self.log = open(self.scratch / "server.log", "w+", encoding="utf-8")
        self.server = subprocess.Popen(
            ["bash", "-c", f"exec {self.here(blocks.without_comments(command))}"], cwd=self.scratch / "checkout", env=self.environment,
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)  # fmt: skip
        deadline = time.monotonic() + GUARD_S
        while '"event":"serving"' not in (log := self._log()):
            if self.server.poll() is not None or time.monotonic() > deadline:
                self.server.kill()
                self.server.wait()
                self.server = None
                raise RuntimeError(f"the server does not serve: {command}\n{log}")
            time.sleep(0.02)

    def _log(self):
        self.log.seek(0)
        return self.log.read()

    def _stop_server(self):
        if self.server is None:
            return
        self.server.terminate()
        if self.server.wait(GUARD_S) != 0:
            self.errors.append(f"{self.path}: a server ended with status {self.server.returncode}:\n{self._log()}")
        self.server = None

    def _is_complete(self, text):
        return subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).returncode == 0

    def _skip(self, reason):
        self.not_run[reason] = self.not_run.get(reason, 0) + 1

    def _fail(self, line, command, what):
        self.errors.append(f"{self.path}:{line}: {command}\n    {what}")


def main():
    build = pathlib.Path(os.environ["PHASOR_BUILD"]).resolve()
    pages = sys.argv[1:] or sorted({str(p.relative_to(ROOT)) for pattern in PAGES for p in ROOT.glob(pattern)})
    ran, not_run, errors = 0, {}, []
    for path in pages:
        with tempfile.TemporaryDirectory() as scratch:
            page = Page(path, build, pathlib.Path(scratch))
            page.run((ROOT / path).read_text(encoding="utf-8"))
        print(f"{path}: ran {page.ran}, not run {sum(page.not_run.values())}")
        ran += page.ran
        errors += page.errors
        for reason, count in page.not_run.items():
            not_run[reason] = not_run.get(reason, 0) + count
    print(f"\nran {ran}, not run {sum(not_run.values())}:")
    for reason, count in sorted(not_run.items(), key=lambda item: -item[1]):
        print(f"  {count:3} {reason}")
    print("\n".join(["", *errors]) if errors else "")
    nothing = ran == 0 and not sys.argv[1:]
    if nothing:
        print("no command of the documentation ran")
    sys.exit(1 if errors or nothing else 0)


if __name__ == "__main__":
    main()
