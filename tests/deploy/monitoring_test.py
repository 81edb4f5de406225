# SPDX-License-Identifier: Apache-2.0
"""Checks that alerts, dashboard and compose file agree with each other and with the documents.
Their own tools check them too."""

import json
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


ALERTS = text("deploy/prometheus/alerts.yml")
COMPOSE = text("deploy/compose/compose.yaml")
ENVOY = text("deploy/envoy/envoy.yaml")
DASHBOARD = json.loads(text("deploy/grafana/phasor.json"))


def alerts():
    return re.findall(r"^      - alert: (\w+)$", ALERTS, re.MULTILINE)


def service(name):
    """The lines of one service of the compose file."""
    return re.search(rf"^  {name}:\n((?:    .*\n|\n)+)", COMPOSE, re.MULTILINE)[1]


class AlertsTest(unittest.TestCase):
    def test_every_alert_has_a_runbook_and_every_runbook_an_alert(self):
        entries = re.findall(r"^## (\w+)$", text("docs/runbooks.md"), re.MULTILINE)
        self.assertEqual(sorted(entries), sorted(alerts()))
        links = re.findall(r"runbook: docs/runbooks\.md#(\S+)", ALERTS)
        self.assertEqual(links, [name.lower() for name in alerts()])

    def test_runbooks_name_panels_of_the_dashboard(self):
        panels = {panel["title"] for panel in DASHBOARD["panels"]}
        named = {" ".join(name.split()) for name in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", text("docs/runbooks.md"))}
        self.assertGreater(len(named), 4)
        self.assertEqual(named - panels, set())

    def test_every_alert_has_a_case_that_fires_and_one_that_does_not(self):
        cases = re.findall(r"alertname: (\w+)", text("deploy/prometheus/alerts_test.yml"))
        self.assertEqual(cases, [name for name in alerts() for _ in range(2)])

    def test_every_alert_says_how_bad_it_is(self):
        self.assertEqual(len(re.findall(r"labels: \{severity: (?:critical|warning)\}", ALERTS)), len(alerts()))


class DashboardTest(unittest.TestCase):
    def test_panels_are_told_apart(self):
        ids = [panel["id"] for panel in DASHBOARD["panels"]]
        self.assertEqual(len(ids), len(set(ids)))

    def test_every_expression_is_of_the_chosen_source_and_replicas(self):
        targets = [target for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
        self.assertGreater(len(targets), 40)
        for target in targets:
            self.assertEqual(target["datasource"]["uid"], "${datasource}")
            selectors = re.findall(r"\{([^}]*)\}", target["expr"])
            self.assertTrue(selectors, target["expr"])
            for selector in selectors:
                self.assertIn('job="$job", instance=~"$instance"', selector)


class ComposeTest(unittest.TestCase):
    def test_three_replicas_and_everything_that_watches_them(self):
        names = re.findall(r"^  (\w+):$", COMPOSE[: COMPOSE.index("\nvolumes:")], re.MULTILINE)
        self.assertEqual(names, ["phasor", "envoy", "prometheus", "grafana"])
        self.assertIn("replicas: 3", service("phasor"))

    def test_every_mounted_file_exists(self):
        mounts = re.findall(r"^      - (\.[^:]*):", COMPOSE, re.MULTILINE)
        self.assertGreater(len(mounts), 6)
        for path in mounts:
            if path != "./tls":  # certificate.sh makes it
                self.assertTrue((ROOT / "deploy/compose" / path).exists(), path)

    def test_replicas_stop_in_the_time_they_are_given(self):
        phasor = service("phasor")
        delay, timeout = (int(re.search(rf"--drain-{what}=(\d+)s", phasor)[1]) for what in ("delay", "timeout"))
        grace = int(re.search(r"stop_grace_period: (\d+)s", phasor)[1])
        self.assertGreaterEqual(grace, delay + timeout + 5)
        notice = float(re.search(r"^          interval: (\S+)s$", ENVOY, re.MULTILINE)[1])
        notice *= int(re.search(r"unhealthy_threshold: (\d+)", ENVOY)[1])
        self.assertGreater(delay, notice)

    def test_only_tls_is_published_beyond_this_host(self):
        ports = re.findall(r'^    ports: \["([^"]+)"\]$', COMPOSE, re.MULTILINE)
        self.assertEqual(COMPOSE.count("ports:"), len(ports))
        self.assertEqual([port for port in ports if not port.startswith("127.0.0.1:")], ["8443:8443"])
        self.assertIn("internal: true", COMPOSE)

    def test_every_container_is_confined(self):
        self.assertEqual(COMPOSE.count("    <<: *confined\n"), COMPOSE.count("    image: "))

    def test_ports_are_those_that_others_ask_at(self):
        prometheus = text("deploy/prometheus/prometheus.yml")
        self.assertIn(f"port: {re.search(r'METRICS_LISTEN: [0-9.]+:([0-9]+)', COMPOSE)[1]}", prometheus)
        self.assertIn("names: [envoy], type: A, port: 9902", prometheus)
        self.assertIn("address: 0.0.0.0, port_value: 9902", ENVOY)
        self.assertIn("address: phasor, port_value: 50051", ENVOY)


if __name__ == "__main__":
    unittest.main()
