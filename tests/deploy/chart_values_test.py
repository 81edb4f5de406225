# SPDX-License-Identifier: Apache-2.0
"""Tests every value of the Helm chart: with it and without it the chart renders valid objects that
differ, and the chart's README has it. `chart_values_test.py --fix` writes the README's table."""

import copy
import functools
import json
import pathlib
import re
import sys
import unittest

try:
    import kubernetes_validate
    import yaml

    import chart
except ImportError as error:
    print(f"SKIP: {error}; ./dev test installs it (tests/requirements.txt)")
    sys.exit(77)

TEXT = (chart.CHART / "values.yaml").read_text(encoding="utf-8")
README = chart.CHART / "README.md"
TABLE = re.compile(r"(?<=<!-- values: begin -->\n).*(?=<!-- values: end -->)", re.S)
VERSIONS = ("1.27", "1.31", kubernetes_validate.latest_version())

# A value that is not the default, by its path in values.yaml.
OTHER = {
    "nameOverride": "rope",
    "fullnameOverride": "rope",
    "image.repository": "registry.example.com/phasor",
    "image.tag": "9.9.9",
    "image.digest": "sha256:" + "0" * 64,
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "replicas": 3,
    "server.listenHost": "[::]",
    "server.backend": "cpu",
    "server.threads": 7,
    "server.maxInflightBytes": "512MiB",
    "server.poolBytes": "64MiB",
    "server.maxConnectionAge": "5m",
    "startupTimeoutSeconds": 60,
    "probes.startup.periodSeconds": 2,
    "probes.startup.timeoutSeconds": 2,
    "probes.liveness.periodSeconds": 11,
    "probes.liveness.timeoutSeconds": 3,
    "probes.liveness.failureThreshold": 4,
    "probes.readiness.periodSeconds": 3,
    "probes.readiness.timeoutSeconds": 3,
    "probes.readiness.failureThreshold": 2,
    "drain.delaySeconds": 12,
    "drain.timeoutSeconds": 31,
    "terminationGracePeriodSeconds": 300,
    "config": {"log_level": "warn"},
    "extraArgs": ["--max-connections=4096"],
    "extraEnv": [{"name": "OTEL_SERVICE_NAME", "value": "rope"}],
    "extraVolumes": [{"name": "tmp", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    "resources.requests.cpu": "3",
    "resources.requests.memory": "2Gi",
    "resources.limits.memory": "4Gi",
    "gpu.enabled": True,
    "gpu.resource": "nvidia.com/gpu.shared",
    "gpu.count": 2,
    "gpu.runtimeClassName": "nvidia",
    "gpu.tolerateTaint": False,
    "gpu.taintKey": "example.com/gpu",
    "gpu.devices": "0",
    "gpu.deviceFault": "retry",
    "tls.enabled": True,
    "tls.secretName": "other",
    "tls.clientCertificates": True,
    "tls.caSecretName": "clients",
    "tls.caKey": "clients.pem",
    "tls.certificate.enabled": True,
    "tls.certificate.issuerRef.name": "other",
    "tls.certificate.issuerRef.kind": "ClusterIssuer",
    "tls.certificate.issuerRef.group": "awspca.cert-manager.io",
    "tls.certificate.duration": "720h",
    "tls.certificate.renewBefore": "240h",
    "tls.certificate.dnsNames": ["phasor.example.com"],
    "tokens.secretName": "tokens",
    "tokens.key": "tokens.txt",
    "policy": {"identities": []},
    "tables.enabled": True,
    "tables.existingClaim": "mine",
    "tables.accessMode": "ReadWriteOnce",
    "tables.storageClassName": "nfs",
    "tables.size": "4Gi",
    "tables.maxBytes": "512MiB",
    "tables.rescanInterval": "1s",
    "metrics.enabled": False,
    "metrics.serviceMonitor.enabled": True,
    "metrics.serviceMonitor.interval": "15s",
    "metrics.serviceMonitor.scrapeTimeout": "5s",
    "metrics.serviceMonitor.labels": {"release": "prometheus"},
    "metrics.prometheusRule.enabled": True,
    "metrics.prometheusRule.labels": {"release": "prometheus"},
    "metrics.dashboard.enabled": True,
    "metrics.dashboard.labels.grafana_dashboard": "yes",
    "service.type": "LoadBalancer",
    "service.annotations": {"example.com/internal": "true"},
    "rest.enabled": True,
    "rest.image": "registry.example.com/envoy:1",
    "rest.origins": ["https://phasor.example.com"],
    "rest.maxBodyBytes": "1MiB",
    "rest.resources.requests.cpu": "200m",
    "rest.resources.requests.memory": "64Mi",
    "rest.resources.limits.memory": "1Gi",
    "grpcRoute.enabled": True,
    "grpcRoute.annotations": {"example.com/owner": "rope"},
    "grpcRoute.parentRefs": [{"name": "other", "namespace": "gateways"}],
    "grpcRoute.hostnames": ["phasor.example.com"],
    "ingress.enabled": True,
    "ingress.className": "nginx",
    "ingress.annotations": {"example.com/owner": "rope"},
    "ingress.hosts": ["other.example.com"],
    "ingress.tlsSecretName": "other",
    "serviceAccount.create": False,
    "serviceAccount.name": "other",
    "serviceAccount.annotations": {"example.com/role": "rope"},
    "autoscaling.enabled": True,
    "autoscaling.minReplicas": 3,
    "autoscaling.maxReplicas": 20,
    "autoscaling.metric": "bytesInFlight",
    "autoscaling.by": "keda",
    "autoscaling.prometheusAddress": "https://prometheus:9090",
    "autoscaling.targetCpu": 50,
    "autoscaling.targetQueueTime": "10m",
    "autoscaling.targetBytesInFlight": "256Mi",
    "autoscaling.scaleDownStabilizationSeconds": 60,
    "podDisruptionBudget.enabled": False,
    "podDisruptionBudget.maxUnavailable": "25%",
    "podDisruptionBudget.unhealthyPodEvictionPolicy": "IfHealthyBudget",
    "networkPolicy.enabled": True,
    "networkPolicy.clientLabels.phasor-client": "yes",
    "networkPolicy.clientNamespaces": {},
    "networkPolicy.monitoringNamespaces.matchLabels.kubernetes.io/metadata.name": "watch",
    "networkPolicy.extraClients": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
    "networkPolicy.extraEgress": [{"ports": [{"protocol": "TCP", "port": 4317}]}],
    "updateStrategy.maxUnavailable": 1,
    "updateStrategy.maxSurge": 2,
    "topologySpread": [],
    "sidecar.enabled": True,
    "sidecar.app": {"name": "other", "image": "other"},
    "sidecar.native": True,
    "sidecar.directory": "/run/rope",
    "sidecar.directorySizeLimit": "32Mi",
    "sidecar.shareProcessNamespace": True,
    "sidecar.posixSharedMemory.enabled": True,
    "sidecar.posixSharedMemory.sizeLimit": "2Gi",
    "node.enabled": True,
    "node.directory": "/var/run/rope",
    "node.socketMode": "0660",
    "node.maxUnavailable": 3,
    "node.prepare.enabled": False,
    "node.prepare.image": "registry.example.com/busybox:1",
    "podSecurityContext.runAsNonRoot": False,
    "podSecurityContext.runAsUser": 1000,
    "podSecurityContext.runAsGroup": 1000,
    "podSecurityContext.fsGroup": 1000,
    "podSecurityContext.seccompProfile.type": "Unconfined",
    "securityContext.allowPrivilegeEscalation": True,
    "securityContext.readOnlyRootFilesystem": False,
    "securityContext.capabilities.drop": ["NET_RAW"],
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}}],
    "podLabels": {"team": "rope"},
    "podAnnotations": {"example.com/owner": "rope"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "high",
}
# What must be set before a value has an effect, by the longest path that is a beginning of its own.
ROOM = {"resources": {"limits": {"memory": "8Gi"}}}
KEDA = {"metrics": {"serviceMonitor": {"enabled": True}},
        "autoscaling": {"enabled": True, "metric": "queueTime", "prometheusAddress": "http://prometheus:9090"}}
GIVEN = {
    "gpu.": ROOM | {"gpu": {"enabled": True}},
    "gpu.enabled": ROOM,
    "tls.": {"tls": {"enabled": True, "secretName": "phasor-tls"}},
    "tls.enabled": {"tls": {"secretName": "phasor-tls"}},
    "tls.ca": {"tls": {"enabled": True, "secretName": "phasor-tls", "clientCertificates": True}},
    "tls.certificate.": {"tls": {"enabled": True, "secretName": "phasor-tls", "certificate": {"enabled": True, "issuerRef": {"name": "a"}}}},
    "tls.certificate.enabled": {"tls": {"enabled": True, "secretName": "phasor-tls", "certificate": {"issuerRef": {"name": "a"}}}},
    "tokens.key": {"tokens": {"secretName": "tokens"}},
    "policy": {"tokens": {"secretName": "tokens"}},
    "tables.": ROOM | {"tables": {"enabled": True}},
    "tables.enabled": ROOM,
    "tables.accessMode": ROOM | {"replicas": 1, "updateStrategy": {"maxSurge": 0, "maxUnavailable": 1}, "tables": {"enabled": True}},
    "metrics.serviceMonitor.": {"metrics": {"serviceMonitor": {"enabled": True}}},
    "metrics.serviceMonitor.enabled": {},
    "metrics.prometheusRule.labels": {"metrics": {"prometheusRule": {"enabled": True}}},
    "metrics.dashboard.labels": {"metrics": {"dashboard": {"enabled": True}}},
    "rest.": {"rest": {"enabled": True}},
    "rest.enabled": {},
    "grpcRoute.": {"grpcRoute": {"enabled": True, "parentRefs": [{"name": "public"}]}},
    "grpcRoute.enabled": {"grpcRoute": {"parentRefs": [{"name": "public"}]}},
    "ingress.": {"ingress": {"enabled": True, "hosts": ["phasor.example.com"], "tlsSecretName": "a"}},
    "ingress.enabled": {"ingress": {"hosts": ["phasor.example.com"], "tlsSecretName": "a"}},
    "autoscaling.": KEDA,
    "autoscaling.enabled": {},
    "autoscaling.prometheusAddress": KEDA | {"autoscaling": KEDA["autoscaling"] | {"by": "keda"}},
    "autoscaling.targetCpu": {"autoscaling": {"enabled": True}},
    "autoscaling.targetBytesInFlight": {"autoscaling": {"enabled": True, "metric": "bytesInFlight"}},
    "networkPolicy.": {"networkPolicy": {"enabled": True}},
    "networkPolicy.enabled": {},
    "sidecar.": {"sidecar": {"enabled": True, "app": {"name": "model", "image": "model"}}},
    "sidecar.enabled": {"sidecar": {"app": {"name": "model", "image": "model"}}},
    "sidecar.posixSharedMemory.sizeLimit": {"sidecar": {"enabled": True, "app": {"name": "model", "image": "model"}, "posixSharedMemory": {"enabled": True}}},
    "node.": {"node": {"enabled": True}},
    "node.enabled": {},
}


def leaves(values, path=""):
    """Paths of values, and the values. Empty maps and lists are values too."""
    for key, value in values.items():
        at = f"{path}{key}"
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{at}.")
        else:
            yield at, value


DEFAULTS = dict(leaves(yaml.safe_load(TEXT)))


def with_value(given, path, value):
    """A copy of `given` with one value set. The keys of a map may have dots, as those of labels do."""
    changed = at = copy.deepcopy(given)
    default = yaml.safe_load(TEXT)
    while path not in default or isinstance(default[path], dict) and default[path]:
        key = max((k for k in default if path.startswith(f"{k}.")), key=len)
        at, default, path = at.setdefault(key, {}), default[key], path[len(key) + 1 :]
    at[path] = value
    return changed


def given_for(path):
    fitting = [start for start in GIVEN if path.startswith(start)]
    return GIVEN[max(fitting, key=len)] if fitting else {}


class EveryValueTest(unittest.TestCase):
    def test_all_are_here(self):
        self.assertEqual(set(DEFAULTS), set(OTHER))

    def test_each_changes_what_is_rendered_and_both_are_valid(self):
        unchanged = functools.lru_cache(lambda given: chart.render_values(json.loads(given)))
        valid = set()
        for path, other in OTHER.items():
            with self.subTest(path):
                without = unchanged(json.dumps(given_for(path)))
                changed = chart.render_values(with_value(given_for(path), path, other))
                self.assertNotEqual(without, changed)
                for document in without + changed:
                    if document["kind"] not in chart.CUSTOM and repr(document) not in valid:
                        valid.add(repr(document))
                        for version in VERSIONS[path == "sidecar.native" or path.startswith("rest.") :]:  # need 1.29
                            kubernetes_validate.validate(document, version, strict=True)


class ReadmeTest(unittest.TestCase):
    def test_table_is_that_of_the_values(self):
        found = TABLE.search(README.read_text(encoding="utf-8"))
        self.assertEqual(found[0], table(), "run tests/deploy/chart_values_test.py --fix")

    def test_every_value_or_its_map_is_explained(self):
        rows = [row.split(" | ") for row in table().splitlines()[2:]]
        self.assertEqual([row[0].strip("| `") for row in rows], list(DEFAULTS))
        self.assertEqual([row[0] for row in rows if not row[2].strip(" |")], [])


def comments():
    """The comment above each key of values.yaml, by its path; that of a map is one of its first value."""
    found, above, open_keys = {}, [], []
    for line in TEXT.splitlines()[3:]:
        text = line.strip()
        if not text:
            above = []
        elif text.startswith("#"):
            above.append(text.lstrip("# "))
        elif key := re.match(r"( *)([A-Za-z_][\w./-]*):", line):
            depth = len(key[1]) // 2
            open_keys = open_keys[:depth] + [key[2]]
            found[".".join(open_keys)] = " ".join(above)
            above = []
    return found


def table():
    said = comments()
    rows = ["| value | default | what it is |", "|---|---|---|"]
    for path, value in DEFAULTS.items():
        steps = path.split(".")
        texts = [said.get(".".join(steps[: n + 1]), "") for n in range(len(steps))]
        text = next((t for t in reversed(texts) if t), "")
        shown = yaml.safe_dump(value, default_flow_style=True, width=1000).split("\n")[0]
        rows.append(f"| `{path}` | `{shown}` | {text.replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    if "--fix" in sys.argv:
        text = pathlib.Path(README).read_text(encoding="utf-8")
        README.write_text(TABLE.sub(lambda _: table(), text), encoding="utf-8")
    else:
        unittest.main()
