# SPDX-License-Identifier: Apache-2.0
"""Checks that the Kubernetes manifest agrees with itself and with the image."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFEST = (ROOT / "deploy/kubernetes/phasor.yaml").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def seconds(flag):
    return int(re.search(rf"- --{flag}=(\d+)s", MANIFEST)[1])


class ManifestTest(unittest.TestCase):
    def test_grace_period_covers_the_drain(self):
        grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", MANIFEST)[1])
        self.assertGreaterEqual(grace, seconds("drain-delay") + seconds("drain-timeout") + 5)

    def test_readiness_fails_before_the_drain_delay_is_over(self):
        probe = MANIFEST[MANIFEST.index("readinessProbe") :]
        period = int(re.search(r"periodSeconds: (\d+)", probe)[1])
        failures = int(re.search(r"failureThreshold: (\d+)", probe)[1])
        self.assertLess(period * failures, seconds("drain-delay"))

    def test_a_pod_answers_until_cluster_dns_has_forgotten_it(self):
        self.assertGreater(seconds("drain-delay"), 30)

    def test_user_and_ports_are_those_of_the_image(self):
        user = re.search(r"^USER (\d+):(\d+)", DOCKERFILE, re.MULTILINE)
        self.assertIn(f"runAsUser: {user[1]}\n", MANIFEST)
        self.assertIn(f"runAsGroup: {user[2]}\n", MANIFEST)
        ports = re.search(r"^EXPOSE (.*)", DOCKERFILE, re.MULTILINE)[1].split()
        admin = re.search(r"--admin-listen=0.0.0.0:(\d+)", MANIFEST)[1]
        self.assertEqual(set(re.findall(r"(?:containerPort|port): (\d+)", MANIFEST)), {*ports, admin})
        self.assertEqual(re.findall(r"grpc:\n +port: (\d+)", MANIFEST), [admin] * 3)
        self.assertIn(f"--metrics-listen=0.0.0.0:{ports[1]}", MANIFEST)

    def test_probes_name_the_services_of_the_wire(self):
        proto = (ROOT / "proto/phasor/v1/position_embedding_service.proto").read_text(encoding="utf-8")
        package = re.search(r"^package ([\w.]+);", proto, re.MULTILINE)[1]
        service = re.search(r"^service (\w+)", proto, re.MULTILINE)[1]
        self.assertEqual(re.findall(r'service: (\S+)', MANIFEST), ['""', f"{package}.{service}"])

    def test_container_has_no_privileges(self):
        for setting in (
            "runAsNonRoot: true",
            "readOnlyRootFilesystem: true",
            "allowPrivilegeEscalation: false",
            "type: RuntimeDefault",
            "drop:\n                - ALL",
        ):
            self.assertIn(setting, MANIFEST)


if __name__ == "__main__":
    unittest.main()
