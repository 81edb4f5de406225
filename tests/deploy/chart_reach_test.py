# SPDX-License-Identifier: Apache-2.0
"""Tests how callers reach what the chart renders: by which addresses, from pods of the same node, through gateways,
with a certificate of cert-manager; and how it is scaled."""

import pathlib
import re
import sys
import unittest

try:
    import helm_python
    import yaml

    import chart
except ImportError as error:
    print(f"SKIP: {error}; ./dev test installs it (tests/requirements.txt)")
    sys.exit(77)

KEDA = {
    "metrics": {"serviceMonitor": {"enabled": True}},
    "autoscaling": {"enabled": True, "by": "keda", "metric": "queueTime", "prometheusAddress": "http://prometheus:9090"},
}


def one(documents, kind):
    (found,) = chart.of_kind(documents, kind)
    return found


class NodeTest(unittest.TestCase):
    def setUp(self):
        self.documents = chart.render("node")
        self.pod, self.server = chart.pod_of(self.documents), chart.server_of(self.documents)

    def test_each_node_has_one_server_with_its_sockets_in_a_directory_of_the_node(self):
        self.assertEqual(chart.workload_of(self.documents)["kind"], "DaemonSet")
        (volume,) = [v for v in self.pod["volumes"] if "hostPath" in v]
        (mount,) = [m for m in self.server["volumeMounts"] if m["name"] == volume["name"]]
        # Clients see the same paths.
        self.assertEqual(mount["mountPath"], volume["hostPath"]["path"])
        for socket in (chart.flag(self.server, "listen").removeprefix("unix:"), chart.flag(self.server, "lease-socket")):
            self.assertEqual(str(pathlib.PurePosixPath(socket).parent), mount["mountPath"])
        self.assertEqual(chart.flag(self.server, "socket-mode"), "0660")

    def test_directory_is_given_to_the_user_of_the_server(self):
        (prepare,) = self.pod["initContainers"]
        user = self.pod["securityContext"]
        self.assertEqual(prepare["command"], ["chown", f"{user['runAsUser']}:{user['runAsGroup']}", "/run/phasor"])
        self.assertEqual(prepare["securityContext"]["capabilities"], {"drop": ["ALL"], "add": ["CHOWN"]})
        own = chart.render_values({"node": {"enabled": True, "prepare": {"enabled": False}}})
        self.assertNotIn("initContainers", chart.pod_of(own))
        (volume,) = [v for v in chart.pod_of(own)["volumes"] if "hostPath" in v]
        self.assertEqual(volume["hostPath"]["type"], "Directory")

    def test_only_probes_and_metrics_are_on_the_network(self):
        self.assertEqual([p["name"] for p in self.server["ports"]], ["grpc-admin", "metrics"])
        self.assertEqual([s["spec"]["clusterIP"] for s in chart.of_kind(self.documents, "Service")], ["None"])
        for kind in ("Pod", "PodDisruptionBudget"):
            self.assertEqual(chart.of_kind(self.documents, kind), [])
        self.assertNotIn("topologySpreadConstraints", self.pod)

    def test_devices_are_chosen_and_a_lost_one_is_tried_again(self):
        self.assertEqual(chart.flag(self.server, "devices"), "0,1")
        self.assertEqual(chart.flag(self.server, "device-fault"), "retry")
        self.assertIsNone(chart.flag(chart.server_of(chart.render("default")), "devices"))

    def test_notes_say_where_the_sockets_are(self):
        self.assertIn("/run/phasor/phasor.sock", chart.notes(chart.values("node")))


class AddressTest(unittest.TestCase):
    def test_long_release_names_still_give_names_that_fit(self):
        for document in chart.render_values({}, release="a" * 53):
            self.assertLessEqual(len(document["metadata"]["name"]), 63)

    def test_image_opens_no_port_that_the_chart_does_not_open(self):
        image = (chart.ROOT / "Dockerfile").read_text(encoding="utf-8")
        opened = {n.lower().replace("_", "-") for n in re.findall(r"PHASOR_(\w*LISTEN)=", image)}
        self.assertEqual(opened, {"listen", "metrics-listen"})
        closed = chart.render_values({"metrics": {"enabled": False}})
        # A flag without an address wins over the image's variable.
        self.assertEqual({chart.flag(chart.server_of(closed), name) for name in opened}, {"0.0.0.0:50051", ""})

    def test_more_addresses_add_to_those_of_the_chart(self):
        server = chart.server_of(chart.render_values({"extraArgs": ["--listen=unix:/tmp/phasor.sock"]}))
        self.assertEqual([a for a in server["args"] if a.startswith("--listen=")],
                         ["--listen=0.0.0.0:50051", "--listen=unix:/tmp/phasor.sock"])

    def test_a_pod_answers_until_cluster_dns_has_forgotten_it(self):
        for name in chart.VALUE_SETS:
            documents = chart.render(name)
            delay = chart.seconds(chart.server_of(documents), "drain-delay")
            looked_up = any(p["name"] == "grpc" for s in chart.of_kind(documents, "Service") for p in s["spec"]["ports"])
            if name != "everything":  # has a delay of its own
                self.assertEqual(delay > 30, looked_up, name)


class GatewayTest(unittest.TestCase):
    def setUp(self):
        self.documents = chart.render("gateway")
        self.services = {s["metadata"]["name"]: s["spec"]["ports"] for s in chart.of_kind(self.documents, "Service")}

    def test_gateways_let_the_same_services_through_and_all_exist(self):
        route, ingress = one(self.documents, "GRPCRoute")["spec"], one(self.documents, "Ingress")["spec"]
        of_route = [m["method"]["service"] for m in route["rules"][0]["matches"]]
        of_ingress = [p["path"].removeprefix("/") for p in ingress["rules"][0]["http"]["paths"]]
        self.assertEqual(of_route, of_ingress)
        self.assertNotIn("phasor.v1.SharedMemoryService", of_route)
        text = "".join(f.read_text(encoding="utf-8") for f in (chart.ROOT / "proto").rglob("*.proto"))
        for service in of_route:
            self.assertRegex(text, rf"(?m)^service {service.rpartition('.')[2]} ")

    def test_network_policy_lets_the_gateway_in(self):
        (route,) = one(self.documents, "GRPCRoute")["spec"]["parentRefs"]
        gateway = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": route["namespace"]}}}
        calls = [r for r in one(self.documents, "NetworkPolicy")["spec"]["ingress"]
                 if {"grpc", "http"} <= {p["port"] for p in r["ports"]}]
        self.assertIn(gateway, calls[0]["from"])

    def test_notes_warn_of_a_gateway_that_may_not_call(self):
        given = chart.values("gateway")
        self.assertNotIn("networkPolicy.extraClients", chart.notes(given))
        del given["networkPolicy"]["extraClients"]
        self.assertIn("networkPolicy.extraClients", chart.notes(given))

    def test_backends_are_ports_of_the_service(self):
        (backend,) = one(self.documents, "GRPCRoute")["spec"]["rules"][0]["backendRefs"]
        self.assertIn(backend["port"], [p["port"] for p in self.services[backend["name"]]])
        for path in one(self.documents, "Ingress")["spec"]["rules"][0]["http"]["paths"]:
            service = path["backend"]["service"]
            self.assertIn(service["port"]["name"], [p["name"] for p in self.services[service["name"]]])

    def test_ingress_speaks_the_protocol_of_the_port(self):
        def protocol(given):
            annotations = one(chart.render_values(given), "Ingress")["metadata"]["annotations"]
            return annotations["nginx.ingress.kubernetes.io/backend-protocol"]

        ingress = {"enabled": True, "hosts": ["a.example.com"], "tlsSecretName": "a"}
        self.assertEqual(protocol({"ingress": ingress}), "GRPC")
        self.assertEqual(protocol({"ingress": ingress, "tls": {"enabled": True, "secretName": "a"}}), "GRPCS")
        own = ingress | {"annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "HTTP"}}
        self.assertEqual(protocol({"ingress": own}), "HTTP")

    def test_certificate_is_for_the_secret_and_names_both_services(self):
        certificate = one(self.documents, "Certificate")["spec"]
        (volume,) = [v for v in chart.pod_of(self.documents)["volumes"] if v["name"] == "phasor-tls"]
        self.assertEqual(certificate["secretName"], volume["secret"]["secretName"])
        for service in self.services:
            self.assertLessEqual({service, f"{service}.apps", f"{service}.apps.svc"}, set(certificate["dnsNames"]))
        self.assertIn("phasor.example.com", certificate["dnsNames"])


class RestTest(unittest.TestCase):
    def test_envoy_refuses_before_its_container_is_full(self):
        def heap(given):
            documents = chart.render_values({"rest": {"enabled": True} | given})
            (files,) = [c for c in chart.of_kind(documents, "ConfigMap") if c["metadata"]["name"].endswith("-rest")]
            manager = yaml.safe_load(files["data"]["envoy.yaml"]).get("overload_manager")
            return manager and manager["resource_monitors"][0]["typed_config"]["max_heap_size_bytes"]

        self.assertEqual(heap({}), 256 << 20)
        self.assertEqual(heap({"resources": {"limits": {"memory": "2Gi"}}}), 1 << 30)
        self.assertIsNone(heap({"resources": {"limits": None}}))


class AutoscalerTest(unittest.TestCase):
    def test_autoscaling_owns_the_number_of_pods(self):
        documents = chart.render_values({"autoscaling": {"enabled": True}})
        (deployment,), (scaler,) = (chart.of_kind(documents, k) for k in ("Deployment", "HorizontalPodAutoscaler"))
        self.assertNotIn("replicas", deployment["spec"])
        self.assertEqual(scaler["spec"]["scaleTargetRef"]["name"], deployment["metadata"]["name"])

    def test_autoscaling_needs_no_adapter_unless_it_is_asked_to(self):
        (scaler,) = chart.of_kind(chart.render_values({"autoscaling": {"enabled": True}}), "HorizontalPodAutoscaler")
        target = {"type": "Utilization", "averageUtilization": 70}
        self.assertEqual(scaler["spec"]["metrics"], [{"type": "Resource", "resource": {"name": "cpu", "target": target}}])
        self.assertTrue(chart.server_of(chart.render_values({}))["resources"]["requests"]["cpu"])


class KedaTest(unittest.TestCase):
    def test_it_asks_for_metrics_of_the_monitored_service_that_the_server_has(self):
        scaled = chart.render_values(KEDA)
        self.assertEqual(chart.of_kind(scaled, "HorizontalPodAutoscaler"), [])
        (trigger,) = one(scaled, "ScaledObject")["spec"]["triggers"]
        headless = [s["metadata"]["name"] for s in chart.of_kind(scaled, "Service") if s["spec"].get("clusterIP") == "None"]
        known = (chart.ROOT / "docs/metrics.md").read_text(encoding="utf-8")
        for name, labels in re.findall(r"(phasor_\w+)\{([^}]*)\}", trigger["metadata"]["query"]):
            self.assertEqual(labels, f'namespace="apps",service="{headless[0]}"')
            self.assertIn(re.sub("_(sum|count)$", "", name), known)

    def test_rates_outlive_a_scrape_that_fails(self):
        def seconds(text):
            return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]

        documents = chart.render_values(KEDA)
        (endpoint,) = one(documents, "ServiceMonitor")["spec"]["endpoints"]
        (trigger,) = one(documents, "ScaledObject")["spec"]["triggers"]
        page = (chart.ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
        windows = re.findall(r"\[(\d+[sm])\]", trigger["metadata"]["query"] + page)
        self.assertEqual(len(windows), 4)
        for window in windows:
            self.assertGreaterEqual(seconds(window), 4 * seconds(endpoint["interval"]))

    def test_targets_are_those_of_the_other_scaler(self):
        def trigger(metric):
            given = KEDA | {"autoscaling": KEDA["autoscaling"] | {"metric": metric}}
            return one(chart.render_values(given), "ScaledObject")["spec"]["triggers"][0]

        wait, filled = trigger("queueTime"), trigger("bytesInFlight")
        self.assertEqual((float(wait["metadata"]["threshold"]), wait["metricType"]), (0.005, "Value"))
        self.assertEqual((filled["metadata"]["threshold"], filled["metricType"]), (str(512 << 20), "AverageValue"))
        self.assertEqual(trigger("cpu"), {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "70"}})

    def test_it_owns_the_number_of_pods(self):
        scaled = chart.render_values(KEDA)
        self.assertNotIn("replicas", chart.workload_of(scaled)["spec"])
        target = one(scaled, "ScaledObject")["spec"]["scaleTargetRef"]
        self.assertEqual(target["name"], chart.workload_of(scaled)["metadata"]["name"])


class RefusedTest(unittest.TestCase):
    NODE = {"enabled": True}
    SCHEMA = {
        "both beside an application and on each node": {"node": NODE, "sidecar": {"enabled": True}},
        "TLS on a Unix socket": {"node": NODE, "tls": {"enabled": True, "secretName": "a"}},
        "more pods than nodes": {"node": NODE, "autoscaling": {"enabled": True}},
        "a mode that is none": {"node": NODE | {"socketMode": "rw"}},
        "a directory that is no path": {"node": NODE | {"directory": "phasor"}},
        "a route to nowhere": {"grpcRoute": {"enabled": True}},
        "a host that is none": {"grpcRoute": {"hostnames": ["https://a"]}},
        "an ingress without hosts": {"ingress": {"enabled": True, "tlsSecretName": "a"}},
        "an ingress without TLS": {"ingress": {"enabled": True, "hosts": ["a.example.com"]}},
        "a certificate without TLS": {"tls": {"certificate": {"enabled": True, "issuerRef": {"name": "a"}}}},
        "a certificate of nobody": {"tls": {"enabled": True, "secretName": "a", "certificate": {"enabled": True}}},
        "KEDA without Prometheus": {"metrics": KEDA["metrics"], "autoscaling": {"enabled": True, "by": "keda"}},
        "KEDA without the labels that it asks for": {"autoscaling": KEDA["autoscaling"]},
        "devices that are no numbers": {"gpu": {"enabled": True, "devices": "first"}},
        "what the chart sets": {"config": {"devices": "0"}},
    }
    TEMPLATES = (
        ({"node": NODE, "podSecurityContext": {"runAsUser": None}}, "node.prepare.enabled: nobody knows which user"),
        ({"gpu": {"enabled": True, "devices": "0,1"}}, "gpu.devices: names 2 devices, and the pod has gpu.count, 1"),
        ({"gpu": {"enabled": True, "count": 2}}, "and tables.maxBytes, gpu.count.*, 3791Mi"),
        ({"node": NODE, "replicas": 1, "updateStrategy": {"maxSurge": 0, "maxUnavailable": 1},
          "tables": {"enabled": True, "accessMode": "ReadWriteOnce"}, "resources": {"limits": {"memory": "4Gi"}}},
         "tables.accessMode: ReadWriteOnce is for one pod"),
    )

    def test_schema_refuses(self):
        with helm_python.Chart.load(chart.CHART) as loaded:
            for what, given in self.SCHEMA.items():
                with self.subTest(what), self.assertRaises(helm_python.HelmError):
                    loaded.validate_schema(given)

    def test_templates_refuse(self):
        for given, message in self.TEMPLATES:
            with self.assertRaisesRegex(helm_python.HelmError, message):
                chart.render_values(given)

    def test_maintainers_are_named(self):
        about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
        self.assertTrue(all(m["name"] and m["email"] for m in about["maintainers"]))


if __name__ == "__main__":
    unittest.main()
