# SPDX-License-Identifier: Apache-2.0
"""Checks the custom resources of the chart (Prometheus operator, cert-manager, KEDA) and the KServe
manifests against the schemas that those projects publish. No package has those of the Gateway API."""

import copy
import importlib.metadata
import pathlib
import sys
import unittest

try:
    import yaml

    import chart
    from published_schemas import PublishedSchemas

    for package in ("cloudcoil-models-prometheus-operator", "cloudcoil-models-cert-manager", "cloudcoil-models-keda", "kserve"):
        importlib.metadata.distribution(package)
except ImportError as error:  # PackageNotFoundError is one
    print(f"SKIP: {error}; ./dev test installs it (tests/requirements.txt, tests/deploy/schemas.txt)")
    sys.exit(77)

KSERVE = pathlib.Path(__file__).resolve().parents[2] / "deploy/kserve"
RUNTIME = yaml.safe_load((KSERVE / "serving-runtime.yaml").read_text(encoding="utf-8"))
SERVICE = yaml.safe_load((KSERVE / "inference-service.yaml").read_text(encoding="utf-8"))


# Kinds of the chart, and where their schemas are.
OPERATOR = ("cloudcoil-models-prometheus-operator", "cloudcoil/models/prometheus_operator/v1.py")
PUBLISHED = {
    "ServiceMonitor": OPERATOR,
    "PrometheusRule": OPERATOR,
    "Certificate": ("cloudcoil-models-cert-manager", "cloudcoil/models/cert_manager/v1.py"),
    "ScaledObject": ("cloudcoil-models-keda", "cloudcoil/models/keda/v1alpha1.py"),
}
UNPUBLISHED = {"GRPCRoute"}


def published(kind):
    schemas = PublishedSchemas()
    schemas.read_pydantic(*PUBLISHED[kind])
    return schemas


class ChartTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schemas = published("ServiceMonitor")

    def test_every_value_set_renders_a_valid_one_or_none(self):
        for kind in PUBLISHED:
            schemas, rendered = published(kind), 0
            for name in chart.VALUE_SETS:
                for document in chart.of_kind(chart.render(name), kind):
                    self.assertEqual(schemas.errors(kind, document), [], name)
                    rendered += 1
            self.assertGreater(rendered, 0, f"no value set renders a {kind}")
            spoilt = _with(document, ("spec", "nothing"), {})
            self.assertNotEqual(schemas.errors(kind, spoilt), [], kind)

    def test_all_kinds_have_a_schema(self):
        self.assertEqual(set(PUBLISHED) | UNPUBLISHED, set(chart.CUSTOM))

    def test_schema_refuses_what_the_crd_does_not_know(self):
        (good,) = chart.of_kind(chart.render("everything"), "ServiceMonitor")
        for path, value in (
            (("spec", "endpoints", 0, "prot"), "metrics"),
            (("spec", "endpoints", 0, "interval"), "often"),
            (("spec", "endpoints"), {}),
            (("spec", "selectors"), {}),
        ):
            self.assertNotEqual(self.schemas.errors("ServiceMonitor", _with(good, path, value)), [], path)


class KServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schemas = PublishedSchemas()
        cls.schemas.read_openapi_generator("kserve", "kserve/models")

    def test_runtime_and_service_are_valid(self):
        self.assertEqual(self.schemas.errors("V1alpha1ServingRuntime", RUNTIME), [])
        self.assertEqual(self.schemas.errors("V1beta1InferenceService", SERVICE), [])

    def test_schema_refuses_what_kserve_does_not_know(self):
        for name, good, path, value in (
            ("V1alpha1ServingRuntime", RUNTIME, ("spec", "protocolVersion"), "grpc-v2"),
            ("V1alpha1ServingRuntime", RUNTIME, ("spec", "protocolVersions"), "grpc-v2"),
            ("V1alpha1ServingRuntime", RUNTIME, ("spec", "containers", 0, "readinessProbe", "grpc", "port"), "h2c"),
            ("V1beta1InferenceService", SERVICE, ("spec", "predictor", "model", "runtimes"), "phasor"),
            ("V1beta1InferenceService", SERVICE, ("spec", "predictor", "minReplicas"), "2"),
        ):
            self.assertNotEqual(self.schemas.errors(name, _with(good, path, value)), [], path)

    def test_service_names_the_runtime_and_its_format(self):
        model, spec = SERVICE["spec"]["predictor"]["model"], RUNTIME["spec"]
        self.assertEqual(model["runtime"], RUNTIME["metadata"]["name"])
        self.assertIn(model["protocolVersion"], spec["protocolVersions"])
        self.assertIn(model["modelFormat"], [
            {"name": f["name"], "version": f["version"]} for f in spec["supportedModelFormats"]
        ])

    def test_first_port_is_cleartext_http2_and_the_admin_port_is_probed(self):
        (container,) = RUNTIME["spec"]["containers"]
        self.assertEqual(container["name"], "kserve-container")
        self.assertEqual(container["ports"][0]["name"], "h2c")
        port = container["ports"][0]["containerPort"]
        self.assertIn(f"--listen=0.0.0.0:{port}", container["args"])
        (admin,) = [p["containerPort"] for p in container["ports"] if p["name"] == "grpc-admin"]
        self.assertIn(f"--admin-listen=0.0.0.0:{admin}", container["args"])
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            self.assertEqual(container[probe]["grpc"]["port"], admin)

    def test_prometheus_is_sent_to_the_port_of_metrics(self):
        (container,) = RUNTIME["spec"]["containers"]
        port = RUNTIME["spec"]["annotations"]["prometheus.kserve.io/port"]
        self.assertIn(f"--metrics-listen=0.0.0.0:{port}", container["args"])
        self.assertIn(int(port), [p["containerPort"] for p in container["ports"]])

    def test_it_is_scaled_as_the_chart_scales(self):
        (scaler,) = chart.of_kind(chart.render_values({"autoscaling": {"enabled": True}}), "HorizontalPodAutoscaler")
        (metric,), predictor = scaler["spec"]["metrics"], SERVICE["spec"]["predictor"]
        self.assertEqual(predictor["scaleMetric"], metric["resource"]["name"])
        self.assertEqual(predictor["scaleTarget"], metric["resource"]["target"]["averageUtilization"])
        for bound in ("minReplicas", "maxReplicas"):
            self.assertEqual(predictor[bound], scaler["spec"][bound])

    def test_grace_period_covers_the_drain(self):
        (container,) = RUNTIME["spec"]["containers"]
        needed = chart.seconds(container, "drain-delay") + chart.seconds(container, "drain-timeout") + 5
        self.assertGreaterEqual(SERVICE["spec"]["predictor"]["terminationGracePeriodSeconds"], needed)


def _with(document, path, value):
    """A copy with one value set."""
    changed = copy.deepcopy(document)
    at = changed
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return changed


if __name__ == "__main__":
    unittest.main()
