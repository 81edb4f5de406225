# SPDX-License-Identifier: Apache-2.0
"""dashboard_test.py BUILD: a real Prometheus scrapes a real server under load. Every expression of
the dashboard must return data, every metric of the server must be on it, and every alert must
evaluate. Exit status 77: no Prometheus, or a server without metrics."""

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/accept"))
import running  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SERVER = BUILD / "server/phasor-server"
CLI = BUILD / "client/cli/phasor"
DASHBOARD = json.loads((ROOT / "deploy/grafana/phasor.json").read_text(encoding="utf-8"))
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
PATIENCE_S = 60
METRIC = re.compile(r"\b((?:grpc|phasor|process|nv)_[a-z0-9_]+)\b(?=[{\[) ]|$)")

# Metrics that expressions may name and the server of this test has not: why. Their panels show 0 then.
NOT_HERE = {
    "phasor_tls_handshakes_failed_total": "no TLS in this test",
    "phasor_auth_refused_total": "no credentials in this test",
    "phasor_device_usable": "no device in this test",
    "phasor_device_fallbacks_total": "no device in this test",
    "nv_gpu_utilization": "no GPU in this test",
    "nv_gpu_memory_used_bytes": "no GPU in this test",
    "nv_gpu_memory_total_bytes": "no GPU in this test",
    "nv_gpu_power_usage": "no GPU in this test",
    "nv_gpu_power_limit": "no GPU in this test",
}
# Metrics of the server that the dashboard leaves out: why.
NOT_SHOWN = {
    "phasor_spans_exported_total": "tracing is off unless a collector is named; docs/tracing.md",
    "phasor_spans_dropped_total": "as phasor_spans_exported_total",
    "phasor_batched_calls_total": "the histogram phasor_batch_calls says more",
}


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def eventually(what):
    """The first true value of what(), which is asked until PATIENCE_S are over; then the last one."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError):
            value = what()
            if value or time.monotonic() > deadline:
                return value
        if time.monotonic() > deadline:
            return None
        time.sleep(0.2)


@contextlib.contextmanager
def process(*command, **options):
    child = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, **options)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def expressions():
    """(panel, expression) as Grafana sends them."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"].replace("$__rate_interval", "5s").replace("$job", "phasor")
            yield panel["title"], text.replace("$namespace", ".*").replace("$instance", ".*")


def series(text):
    """Names of metrics in an expression, each as often as it is there."""
    return METRIC.findall(re.sub(r"(?:by|without) \([^)]*\)|\"[^\"]*\"", "", text))


def names(text):
    """Names of metrics in an expression; of a histogram, its own."""
    return {name if name.startswith("nv_") else re.sub(r"_(bucket|sum|count)$", "", name) for name in series(text)}


class DashboardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        directory = cls.stack.enter_context(tempfile.TemporaryDirectory())
        metrics, web = running.free_port(), running.free_port()
        cls.metrics = f"http://127.0.0.1:{metrics}/metrics"
        cls.prometheus = f"http://127.0.0.1:{web}"
        server = cls.stack.enter_context(running.server([SERVER, "--metrics-listen", f"127.0.0.1:{metrics}"]))
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "400ms", "evaluation_interval": "500ms"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [{"job_name": "phasor", "static_configs": [{"targets": [f"127.0.0.1:{metrics}"]}]}],
        }
        (pathlib.Path(directory) / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        log = cls.stack.enter_context(open(f"{directory}/log", "w+", encoding="utf-8"))
        cls.stack.enter_context(
            process("prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
                    f"--web.listen-address=127.0.0.1:{web}", "--enable-feature=exemplar-storage", stdout=log, stderr=log)  # fmt: skip
        )
        cls.server = server
        # Small calls run where they arrive, large ones by workers; some fail.
        for load in (
            ["bench", "--preset", "timestep-sin-cos", "--dim", "128", "--tokens", "8", "--rate", "50"],
            ["bench", "--preset", "llama-3", "--tokens", "64", "--rate", "10"],
        ):
            command = [CLI, *load, "--server", server, "--duration", str(3 * PATIENCE_S)]
            cls.stack.enter_context(process(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wrong = f"while {CLI} tables get missing --server {server}; [ $? = 1 ]; do sleep 0.5; done"
        cls.stack.enter_context(process("sh", "-c", wrong, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def ask(self, path, **parameters):
        return json.loads(get(f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]

    def samples(self, expression):
        """Numbers that an expression has now."""
        return [s for s in self.ask("query", query=expression)["result"] if s["value"][1] != "NaN"]

    def test_every_expression_returns_data(self):
        for panel, expression in expressions():
            with self.subTest(panel=panel, expression=expression):
                self.assertTrue(eventually(lambda e=expression: self.samples(e)), "no data")

    def test_every_scrape_is_read_and_exemplars_lead_to_traces(self):
        trace = "0af7651916cd43dd8448eb211c80319c"

        def found():
            # A call without a message, by hand: `phasor` sends no metadata.
            frame = bytes(5)
            subprocess.run(
                ["curl", "-s", "--http2-prior-knowledge", "-H", "content-type: application/grpc", "-H", "te: trailers",
                 "-H", f"traceparent: 00-{trace}-b7ad6b7169203331-01", "--data-binary", "@-", "-o", "/dev/null",
                 f"http://{self.server}/phasor.v1.PositionEmbeddingService/GetServerInfo"], input=frame, check=True)  # fmt: skip
            now = time.time()
            series = self.ask("query_exemplars", query="grpc_server_call_duration_seconds_bucket", start=now - 600, end=now + 60)
            return [e["labels"] for s in series for e in s["exemplars"]]

        self.assertIn({"trace_id": trace}, eventually(found) or [])
        (target,) = self.ask("targets")["activeTargets"]
        self.assertEqual((target["health"], target["lastError"]), ("up", ""))

    def test_every_series_is_of_the_chosen_namespace_job_and_instance(self):
        for panel, expression in expressions():
            chosen = expression.count('{namespace=~".*", job="phasor", instance=~".*"')
            self.assertEqual(chosen, len(series(expression)), panel)

    def test_variables_find_the_server(self):
        for name in ("job", "instance"):
            self.assertTrue(eventually(lambda n=name: self.ask(f"label/{n}/values", **{"match[]": "phasor_serving"})), name)

    def test_every_name_is_one_of_the_server(self):
        wanted = set.union(*(names(expression) for _, expression in expressions()), names(ALERTS.read_text(encoding="utf-8")))
        self.assertEqual(wanted - self.exposed() - NOT_HERE.keys(), set())

    def test_every_metric_of_the_server_is_on_it(self):
        shown = set.union(*(names(expression) for _, expression in expressions()))
        ours = {name for name in self.exposed() if METRIC.fullmatch(name)}
        self.assertEqual(ours - shown - NOT_SHOWN.keys(), set())

    def exposed(self):
        return set(re.findall(r"^# TYPE (\w+)", eventually(lambda: get(self.metrics)), re.MULTILINE))

    def test_every_alert_can_be_evaluated_and_is_quiet(self):
        def rules():
            found = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
            return found if found and all(rule["health"] != "unknown" for rule in found) else None

        found = eventually(rules)
        self.assertTrue(found, "no rules")
        for rule in found:
            self.assertEqual((rule["name"], rule["health"], rule.get("lastError")), (rule["name"], "ok", None))
            self.assertNotEqual(rule["state"], "firing", rule["name"])


if __name__ == "__main__":
    if not shutil.which("prometheus"):
        print("SKIP: Prometheus is not installed; ./dev test installs it (deploy/apt-test-packages.txt)")
        sys.exit(77)
    if "--metrics-listen" not in subprocess.run([SERVER, "--help"], capture_output=True, text=True, check=True).stdout:
        print("SKIP: this server exports no metrics")
        sys.exit(77)
    unittest.main()
