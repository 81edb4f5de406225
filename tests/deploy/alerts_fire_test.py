# SPDX-License-Identifier: Apache-2.0
"""Joins the rendered chart, the alerts and a real Prometheus: it scrapes as the operator would have
it do for the chart's ServiceMonitor, and every alert that names a job must fire. Exit status 77: no
Prometheus, or no Helm."""

import contextlib
import http.server
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "accept"))
import running  # noqa: E402

try:
    import yaml

    import chart
except ImportError as error:
    print(f"SKIP: {error}; ./dev test installs it (tests/requirements.txt)")
    sys.exit(77)

PATIENCE_S = 60
# Releases whose Services are called differently.
RELEASES = ({"release": "demo"}, {"release": "x", "nameOverride": "embeddings"})


class Page(http.server.BaseHTTPRequestHandler):
    """Metrics of a server that restarts before every scrape and has no descriptors left."""

    starts = itertools.count(1)

    def do_GET(self):
        text = f"process_start_time_seconds {next(Page.starts)}\nprocess_open_fds 95\nprocess_max_fds 100\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def label(name):
    return "__meta_kubernetes_service_label_" + re.sub("[^A-Za-z0-9_]", "_", name)


def scrape_config(documents, port):
    """What Prometheus's operator makes of a ServiceMonitor: the job is the Service's name, or the
    label that jobLabel names; then come the relabelings of the endpoint."""
    (monitor,) = chart.of_kind(documents, "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (service,) = [
        s
        for s in chart.of_kind(documents, "Service")
        if wanted <= s["metadata"]["labels"].items() and endpoint["port"] in [p["name"] for p in s["spec"]["ports"]]
    ]
    found = {label(name): value for name, value in service["metadata"]["labels"].items()}
    found["__meta_kubernetes_service_name"] = service["metadata"]["name"]
    rules = [{"source_labels": ["__meta_kubernetes_service_name"], "target_label": "job", "replacement": "${1}"}]
    if "jobLabel" in monitor["spec"]:
        rules.append({"source_labels": [label(monitor["spec"]["jobLabel"])], "target_label": "job", "regex": "(.+)"})
    for rule in endpoint.get("relabelings", []):
        rules.append({re.sub("[A-Z]", lambda c: "_" + c[0].lower(), key): value for key, value in rule.items()})
    return {
        "job_name": f"serviceMonitor/apps/{monitor['metadata']['name']}/0",
        "metrics_path": endpoint["path"],
        "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": found}],
        "relabel_configs": rules,
    }


def without_waiting(rules):
    """The alerts, which may fire at once."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    return rules


class AlertsFireTest(unittest.TestCase):
    def test_alerts_that_name_a_job_fire_for_every_release_of_the_chart(self):
        for given in RELEASES:
            with self.subTest(release=given):
                self.check(**given)

    def check(self, release, **values):
        values["metrics"] = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
        documents = chart.render_values(values, release=release)
        (rule,) = chart.of_kind(documents, "PrometheusRule")
        named = {a["alert"] for group in rule["spec"]["groups"] for a in group["rules"] if "job=" in a["expr"]}
        self.assertEqual(named, {"PhasorDown", "PhasorNoReplica", "PhasorRestarts", "PhasorDescriptors"})
        page = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=page.serve_forever, daemon=True).start()
        config = {
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
            "scrape_configs": [scrape_config(documents, page.server_port)],
        }
        with self.prometheus(config, without_waiting(rule["spec"])) as alerts:
            # The page does not say that it serves.
            self.eventually_fires(alerts, {"PhasorNoReplica", "PhasorRestarts", "PhasorDescriptors"})
            page.shutdown()
            page.server_close()
            self.eventually_fires(alerts, {"PhasorDown"})

    @contextlib.contextmanager
    def prometheus(self, config, rules):
        """A running Prometheus; yields a function that returns the alerts that fire."""
        web = running.free_port()
        with tempfile.TemporaryDirectory() as directory:
            here = pathlib.Path(directory)
            (here / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
            config["rule_files"] = [str(here / "rules.yml")]
            (here / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
            with open(here / "log", "w+", encoding="utf-8") as log, subprocess.Popen(
                ["prometheus", f"--config.file={here}/prometheus.yml", f"--storage.tsdb.path={here}/data",
                 f"--web.listen-address=127.0.0.1:{web}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log) as child:
                try:
                    yield lambda: firing(f"http://127.0.0.1:{web}/api/v1/alerts")
                finally:
                    child.kill()

    def eventually_fires(self, alerts, wanted):
        deadline = time.monotonic() + PATIENCE_S
        while not wanted <= alerts():
            self.assertLess(time.monotonic(), deadline, f"{wanted} expected, firing: {alerts()}")
            time.sleep(0.1)


def firing(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            found = json.load(answer)["data"]["alerts"]
    except OSError:  # not started yet
        return set()
    return {alert["labels"]["alertname"] for alert in found if alert["state"] == "firing"}


if __name__ == "__main__":
    if not shutil.which("prometheus"):
        print("SKIP: Prometheus is not installed; ./dev test installs it (deploy/apt-test-packages.txt)")
        sys.exit(77)
    unittest.main()
