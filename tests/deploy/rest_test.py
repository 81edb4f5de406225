# SPDX-License-Identifier: Apache-2.0
"""rest_test.py BUILD: curls every HTTP path through a real Envoy with deploy/envoy/envoy.yaml, and
through one with the configuration that the chart renders. Runs the commands of docs/rest.md and
docs/oip.md. Exit status 77: Envoy, curl or the chart's library is missing; it says which."""

import base64
import contextlib
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1))
sys.path[:0] = [str(ROOT / "tests/accept"), str(ROOT / "deploy/envoy")]
import envoy  # noqa: E402
import rest  # noqa: E402
import running  # noqa: E402

for tool, there in (("build/.venv/bin/envoy", envoy.BINARY.exists()), ("curl", shutil.which("curl"))):
    if not there:
        print(f"SKIP: {tool} is not installed; ./dev test installs it")
        sys.exit(77)

ENCODE = {
    "item": {
        "spec": {"preset": "timestep-sin-cos", "dim": 4},
        "positions": {"range": {"integer": {"start": 10, "count": 2}}},
        "output_dtype": "DTYPE_FLOAT32",
    }
}
# Calls that have another body than {}, by path.
BODIES = {"/v1/encode": ENCODE, "/v1/batch-encode": {"items": [ENCODE["item"]]}, "/v1/resolve-spec": {"spec": ENCODE["item"]["spec"]}}
# Without tensors these are refused by the server itself, in its words.
REFUSED = {
    "/v1/apply-rope", "/v1/attention-bias", "/v1/move-keys", "/v1/resolve-model",
    "/v2/models/{model_name}/infer", "/v2/models/{model_name}/versions/{model_version}/infer",
}


def curl(*arguments):
    """Status, answer as text."""
    run = subprocess.run(
        ["curl", "-s", "-m", "20", "-w", "\n%{http_code}", *arguments], capture_output=True, text=True, check=True
    )
    body, _, status = run.stdout.rpartition("\n")
    return int(status), body


def serving(address):
    """Waits until calls reach the server through Envoy."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if curl(f"{address}/v1/health")[0] == 200:
            return
        time.sleep(0.05)
    raise RuntimeError("no call reaches the server")


def too_large(address):
    """Status of a request of more than 8 MiB, and of one of less."""

    def status(mib):
        body = '{"item": {"spec": {"preset": "llama-3"}}, "raw": ["' + "A" * (mib << 20) + '"]}'
        run = subprocess.run(
            ["curl", "-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", "-d", "@-", f"{address}/v1/apply-rope"],
            input=body, capture_output=True, text=True, check=False,  # curl may see the connection end
        )
        return int(run.stdout)

    return status(9), status(7)


class DeployedTest(unittest.TestCase):
    """deploy/envoy/envoy.yaml."""

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        folder = cls.stack.enter_context(tempfile.TemporaryDirectory())
        server = cls.stack.enter_context(running.server([BUILD / "server/phasor-server", "--max-metadata-bytes=16KiB"]))
        _, plain, tls = cls.stack.enter_context(envoy.deployed(folder, [server]))
        cls.address, cls.tls = f"http://127.0.0.1:{plain}", f"https://127.0.0.1:{tls}"
        serving(cls.address)

    def test_every_path_reaches_its_method(self):
        with_token = {"name": "llama-3.1-8b", "model_name": "llama-3.1-8b", "version": "1", "model_version": "1"}
        for _, method, verb, paths in rest.RULES:
            for path in paths:
                with self.subTest(method, path=path):
                    body = ["-d", json.dumps(BODIES.get(path, {}))] if verb == "post" else []
                    status, answer = curl(*body, self.address + path.format(**with_token))
                    if path in REFUSED:
                        self.assertEqual((status, json.loads(answer)["code"]), (400, 3), answer)
                    else:
                        self.assertEqual(status, 200, answer)
                        json.loads(answer)

    def test_numbers_are_those_of_the_command_line(self):
        status, answer = curl("-d", json.dumps(ENCODE), f"{self.address}/v1/encode")
        self.assertEqual(status, 200)
        told = subprocess.run(
            [BUILD / "client/cli/phasor", "encode", "--preset", "timestep-sin-cos", "--dim", "4", "--positions", "10,11", "--json"],
            capture_output=True, text=True, check=True,
        )
        raw = base64.b64decode(json.loads(answer)["raw"][0])
        numbers = [number for row in json.loads(told.stdout)["rows"]["values"] for number in row]
        self.assertEqual(raw, struct.pack("<8f", *numbers))

    def test_unknown_paths_and_queries_and_other_services_are_refused(self):
        for path in ("/v1/nope", "/v2/models/a/generate", "/phasor.v1.SharedMemoryService/Unregister", "/grpc.channelz.v1.Channelz/GetServers"):
            self.assertEqual(curl("-d", "{}", self.address + path)[0], 404, path)
        self.assertEqual(curl(f"{self.address}/v1/health?servce=x")[0], 400)

    def test_errors_have_the_words_of_the_server(self):
        status, answer = curl("-d", '{"item": {"spec": {"preset": "timestep-sincos"}}}', f"{self.address}/v1/encode")
        self.assertEqual((status, json.loads(answer)["message"]), (400, "item.positions: not set; must be given"))

    def test_both_versions_of_http_work_over_tls(self):
        for version in ("--http1.1", "--http2"):
            self.assertEqual(curl("-k", version, f"{self.tls}/v1/health")[0], 200, version)

    def test_only_pages_of_allowed_origins_may_call(self):
        def allowed(origin):
            asked = ["-o", "/dev/null", "-D", "-", "-X", "OPTIONS", "-H", f"Origin: {origin}", "-H", "Access-Control-Request-Method: POST"]
            return "access-control-allow-origin" in curl(*asked, f"{self.address}/v1/encode")[1]

        self.assertTrue(allowed("http://localhost:3000"))
        self.assertFalse(allowed("http://localhost.example.com"))

    def test_an_answer_that_is_too_large_is_an_error_and_no_half_answer(self):
        def rows(count):
            body = json.loads(json.dumps(ENCODE))
            body["item"]["positions"]["range"]["integer"]["count"] = count
            status, answer = curl("-d", json.dumps(body), f"{self.address}/v1/encode")
            return status, len(answer)

        fits = 200_000  # 3.2 MB, as base64 4.3
        status, size = rows(fits)
        self.assertEqual((status, size > fits * 16 * 4 / 3), (200, True))
        self.assertEqual(rows(4 * fits)[0], 500)

    def test_a_request_that_is_too_large_is_refused_and_not_held(self):
        self.assertEqual(too_large(self.address), (413, 400))

    def test_commands_of_the_pages_answer_as_they_say(self):
        ran = 0
        for page in ("rest", "oip"):
            text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
            for command, answer in re.findall(r"^    (curl .*\$PHASOR.*)\n\n```\n(.*)\n```$", text, re.M):
                run = subprocess.run(["bash", "-c", command], env={"PHASOR": self.address, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
                self.assertEqual(run.stdout.strip(), answer, page)
                ran += 1
        self.assertEqual(ran, 3)


class ChartTest(unittest.TestCase):
    """The chart's configuration, as rendered, but for paths and ports of this machine."""

    def test_it_answers_over_the_socket_of_the_pod(self):
        try:
            import chart
        except ImportError as error:
            self.skipTest(f"{error}; ./dev test installs it")
        with tempfile.TemporaryDirectory() as folder:
            given = {"rest": {"enabled": True, "origins": ["https://a.example.com"]}}
            documents = chart.render_values(given)
            (files,) = [c for c in chart.of_kind(documents, "ConfigMap") if c["metadata"]["name"].endswith("-rest")]
            pathlib.Path(folder, "phasor.pb").write_bytes(base64.b64decode(files["binaryData"]["phasor.pb"]))
            socket = chart.flag(chart.server_of(documents), "listen").split(",unix:")[1]
            port, config = running.free_port(), files["data"]["envoy.yaml"]
            self.assertIn(socket, config)
            config = config.replace("/etc/envoy/", f"{folder}/").replace(socket, f"{folder}/phasor.sock")
            config = config.replace("0.0.0.0", "127.0.0.1").replace("port_value: 8080", f"port_value: {port}")
            config += "admin: {address: {socket_address: {address: 127.0.0.1, port_value: ADMIN}}}\n"
            with running.server([BUILD / "server/phasor-server", "--listen", f"unix:{folder}/phasor.sock"]), envoy.process(config, folder):
                serving(f"http://127.0.0.1:{port}")
                self.assertEqual(curl("-d", json.dumps(ENCODE), f"http://127.0.0.1:{port}/v1/encode")[0], 200)
                self.assertEqual(curl("-d", "{}", f"http://127.0.0.1:{port}/v1/nope")[0], 404)
                self.assertEqual(too_large(f"http://127.0.0.1:{port}"), (413, 400))


class DescriptorsTest(unittest.TestCase):
    def test_file_is_what_protos_and_rules_give(self):
        self.assertEqual(rest.OUT.read_bytes(), rest.with_rules(rest.descriptors()), "run deploy/envoy/rest.py")

    def test_every_public_unary_method_has_a_path_or_a_reason(self):
        without = {
            "DeleteTable": "removes what others use", "GetTable": "larger than JSON should be",
            "TraceSetting": "unimplemented", "LogSettings": "unimplemented",
            "RepositoryModelLoad": "unimplemented", "RepositoryModelUnload": "unimplemented", "BatchMoveKeys": "of memory on the server's host",
        }
        text = "".join((ROOT / "proto" / name).read_text(encoding="utf-8") for name in rest.PROTOS)
        unary = set(re.findall(r"rpc (\w+)\((?!stream)\w+\)\s+returns \((?!stream)", text))
        unary = {m for m in unary if "SharedMemory" not in m}
        self.assertEqual(unary, {method for _, method, _, _ in rest.RULES} | set(without))


if __name__ == "__main__":
    unittest.main()
