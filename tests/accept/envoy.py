# SPDX-License-Identifier: Apache-2.0
"""Runs an Envoy during a `with` block, also with deploy/envoy/envoy.yaml on free ports."""

import contextlib
import pathlib
import subprocess
import time
import urllib.request

import running

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = ROOT / "build/.venv/bin/envoy"
START_S = 60


@contextlib.contextmanager
def process(config, folder):
    """Runs a configuration that says ADMIN for the port of the administration; yields that port when Envoy is live."""
    admin = running.free_port()
    file = pathlib.Path(folder) / "envoy.yaml"
    file.write_text(config.replace("ADMIN", str(admin)), encoding="utf-8")
    with open(f"{folder}/envoy.log", "w+", encoding="utf-8") as log:
        started = subprocess.Popen(
            [BINARY, "-c", file, "-l", "warn", "--concurrency", "1", "--disable-hot-restart"], stdout=log, stderr=log
        )
        try:
            _until(lambda: "LIVE" in read(f"http://127.0.0.1:{admin}/ready"), started, log)
            yield admin
        finally:
            started.kill()
            started.wait()


@contextlib.contextmanager
def deployed(folder, replicas, changes=()):
    """deploy/envoy/envoy.yaml in front of replicas, host:port each, with `changes` of its text: yields the
    ports of the administration, of the listener in plaintext and of that with TLS."""
    folder = pathlib.Path(folder)
    subprocess.run([ROOT / "deploy/compose/certificate.sh", folder / "tls"], check=True, capture_output=True)
    certificate = (ROOT / "deploy/envoy/certificate.yaml").read_text(encoding="utf-8")
    (folder / "certificate.yaml").write_text(certificate.replace("/etc/envoy/", f"{folder}/"), encoding="utf-8")
    plain, tls = running.free_port(), running.free_port()
    config = (ROOT / "deploy/envoy/envoy.yaml").read_text(encoding="utf-8")
    endpoint = "- endpoint: {address: {socket_address: {address: HOST, port_value: PORT}}}"
    replica = "\n              ".join(
        endpoint.replace("HOST", r.split(":")[0]).replace("PORT", r.split(":")[1]) for r in replicas
    )
    for old, new in (
        (endpoint.replace("HOST", "phasor").replace("PORT", "50051"), replica),
        ("/etc/envoy/phasor.pb", str(ROOT / "deploy/envoy/phasor.pb")),
        ("/etc/envoy/", f"{folder}/"),
        ("port_value: 8080}", f"port_value: {plain}}}"),
        ("port_value: 8443}", f"port_value: {tls}}}"),
        ("port_value: 9902}", "port_value: 0}"),
        ("port_value: 9901}", "port_value: ADMIN}"),
        *changes,
    ):
        if old not in config:
            raise ValueError(f"envoy.yaml has no {old!r}")
        config = config.replace(old, new)
    with process(config, folder) as admin:
        yield admin, plain, tls


def read(url):
    with urllib.request.urlopen(url, timeout=5) as page:
        return page.read().decode()


def _until(holds, started, log):
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and started.poll() is None:
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(0.05)
    log.seek(0)
    raise RuntimeError(f"Envoy does not serve:\n{log.read()[-2000:]}")
