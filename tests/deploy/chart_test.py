# SPDX-License-Identifier: Apache-2.0
"""Tests the Helm chart: what it renders is valid Kubernetes and agrees with itself, the plain
manifest and the image; senseless values are refused. Renders with Helm's own library and each value
set of deploy/helm/phasor/ci."""

import copy
import functools
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

try:
    import helm_python
    import kubernetes_validate
    import yaml

    import chart
except ImportError as error:
    print(f"SKIP: {error}; ./dev test installs it (tests/requirements.txt)")
    sys.exit(77)

MANIFEST = list(yaml.safe_load_all((chart.ROOT / "deploy/kubernetes/phasor.yaml").read_text(encoding="utf-8")))
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


class ValidTest(unittest.TestCase):
    def test_helm_lint_finds_nothing(self):
        for name in chart.VALUE_SETS:
            report = helm_python.lint(chart.CHART, chart.values(name), strict=True)
            worse_than_info = [m for m in report["messages"] if m["severity"] > 1]
            self.assertEqual((report["errors"], worse_than_info), ([], []), name)

    def test_core_kinds_fit_the_oldest_and_newest_kubernetes(self):
        for name in chart.VALUE_SETS:
            for document in chart.render(name):
                if document["kind"] not in chart.CUSTOM:
                    # Native sidecars are of 1.29.
                    for version in ("1.29" if name == "gateway" else "1.27", kubernetes_validate.latest_version()):
                        with self.subTest(values=name, kind=document["kind"], kubernetes=version):
                            kubernetes_validate.validate(document, version, strict=True)

    def test_versions_are_those_of_the_project(self):
        version = re.search(r"^project\(phasor VERSION ([\d.]+)", (chart.ROOT / "CMakeLists.txt").read_text(), re.M)[1]
        about = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
        self.assertEqual(about["appVersion"], version)

    def test_each_value_has_a_schema(self):
        schema = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))
        defaults = yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))
        self.assertEqual(set(schema["properties"]) - {"global", "enabled"}, set(defaults))
        for key, value in defaults.items():
            described = schema["properties"][key].get("properties")
            if described is not None:
                self.assertEqual(set(described), set(value), key)


def for_each_value_set(test):
    @functools.wraps(test)
    def run(self):
        for name in chart.VALUE_SETS:
            with self.subTest(values=name):
                test(self, chart.render(name))

    return run


class AgreesWithItselfTest(unittest.TestCase):
    @for_each_value_set
    def test_selectors_match_the_pods_and_not_the_test(self, documents):
        workload = chart.workload_of(documents)
        labels = workload["spec"]["template"]["metadata"]["labels"].items()
        selectors = [workload["spec"]["selector"]["matchLabels"]]
        selectors += [s["spec"]["selector"] for s in chart.of_kind(documents, "Service")]
        selectors += [p["spec"]["selector"]["matchLabels"] for p in chart.of_kind(documents, "PodDisruptionBudget")]
        selectors += [p["spec"]["podSelector"]["matchLabels"] for p in chart.of_kind(documents, "NetworkPolicy")]
        selectors += [
            c["labelSelector"]["matchLabels"]
            for c in workload["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
        ]
        for selector in selectors:
            self.assertLessEqual(selector.items(), labels)
            for test in chart.of_kind(documents, "Pod"):
                self.assertFalse(selector.items() <= test["metadata"]["labels"].items(), "selects the test pod")

    @for_each_value_set
    def test_service_monitor_finds_exactly_one_port(self, documents):
        for monitor in chart.of_kind(documents, "ServiceMonitor"):
            wanted = monitor["spec"]["selector"]["matchLabels"].items()
            found = [
                port["name"]
                for service in chart.of_kind(documents, "Service")
                if wanted <= service["metadata"]["labels"].items()
                for port in service["spec"]["ports"]
                if port["name"] == monitor["spec"]["endpoints"][0]["port"]
            ]
            self.assertEqual(found, ["metrics"])

    @for_each_value_set
    def test_ports_that_are_named_exist_and_are_listened_on(self, documents):
        server = chart.server_of(documents)
        own = {p["name"]: p["containerPort"] for p in server["ports"]}
        ports = own | {p["name"]: p["containerPort"] for c in chart.pod_of(documents).get("initContainers", []) for p in c.get("ports", [])}
        for service in chart.of_kind(documents, "Service"):
            for port in service["spec"]["ports"]:
                self.assertEqual(ports[port["targetPort"]], port["port"])
        for policy in chart.of_kind(documents, "NetworkPolicy"):
            for rule in policy["spec"]["ingress"]:
                self.assertLessEqual({p["port"] for p in rule["ports"]}, set(ports))
        for probe in PROBES:
            self.assertIn(server[probe]["grpc"]["port"], ports.values())
        listens = [chart.flag(server, f) or "" for f in ("listen", "admin-listen", "metrics-listen")]
        addresses = [a for listen in listens for a in listen.split(",") if a and not a.startswith("unix:")]
        self.assertEqual({int(a.rsplit(":", 1)[1]) for a in addresses}, set(own.values()))

    @for_each_value_set
    def test_probes_ask_the_admin_port(self, documents):
        server = chart.server_of(documents)
        for probe in PROBES:
            self.assertTrue(chart.flag(server, "admin-listen").endswith(f":{server[probe]['grpc']['port']}"))

    @for_each_value_set
    def test_grace_period_covers_the_drain_and_readiness_fails_within_the_delay(self, documents):
        server, pod = chart.server_of(documents), chart.pod_of(documents)
        delay = chart.seconds(server, "drain-delay")
        self.assertGreaterEqual(
            pod["terminationGracePeriodSeconds"], delay + chart.seconds(server, "drain-timeout") + 5
        )
        ready = server["readinessProbe"]
        self.assertLess(ready["periodSeconds"] * ready["failureThreshold"], delay)

    @for_each_value_set
    def test_containers_have_no_privileges(self, documents):
        pods = [chart.pod_of(documents)] + [p["spec"] for p in chart.of_kind(documents, "Pod")]
        for pod in pods:
            self.assertIs(pod["automountServiceAccountToken"], False)
            user = pod["securityContext"]
            self.assertIs(user["runAsNonRoot"], True)
            # A number that is not set is chosen by the platform.
            for name in ("runAsUser", "runAsGroup", "fsGroup"):
                self.assertIn(user.get(name), (None, 65532))
            self.assertEqual(user["seccompProfile"], {"type": "RuntimeDefault"})
        for container in [chart.server_of(documents)] + [c for p in pods[1:] for c in p["containers"]]:
            context = container["securityContext"]
            self.assertIs(context["readOnlyRootFilesystem"], True)
            self.assertIs(context["allowPrivilegeEscalation"], False)
            self.assertEqual(context["capabilities"], {"drop": ["ALL"]})

    @for_each_value_set
    def test_mounts_have_volumes_and_secrets_are_read_only(self, documents):
        volumes = {v["name"]: v for v in chart.pod_of(documents).get("volumes", [])}
        for container in chart.pod_of(documents)["containers"]:
            for mount in container.get("volumeMounts", []):
                volume = volumes[mount["name"]]
                if "secret" in volume or "configMap" in volume:
                    self.assertIs(mount.get("readOnly"), True, mount)
                if "secret" in volume:
                    self.assertEqual(volume["secret"]["defaultMode"], 0o440)

    @for_each_value_set
    def test_files_that_flags_name_are_mounted(self, documents):
        server = chart.server_of(documents)
        mounts = [m["mountPath"] for m in server.get("volumeMounts", [])]
        for name in ("tls-cert", "tls-key", "tls-client-ca", "tokens-file", "policy-file", "config", "lease-socket"):
            path = chart.flag(server, name)
            if path is not None:
                self.assertIn(str(pathlib.PurePosixPath(path).parent), mounts)


class VariantsTest(unittest.TestCase):
    def test_threads_follow_the_cpu_limit_then_the_request(self):
        for resources, threads in (
            ({"requests": {"cpu": "2"}}, "2"),
            ({"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}}, "2"),
            ({"requests": {"cpu": 1}, "limits": {"cpu": 2.5}}, "3"),
            ({"limits": {"cpu": "250m"}}, "1"),
            ({"limits": {"cpu": "3000m"}}, "3"),
        ):
            documents = chart.render_values({"resources": resources})
            self.assertEqual(chart.flag(chart.server_of(documents), "threads"), threads, resources)
        told = chart.render_values({"server": {"threads": 7}})
        self.assertEqual(chart.flag(chart.server_of(told), "threads"), "7")

    def test_pods_roll_when_their_configuration_changes_and_only_then(self):
        def checksum(given):
            (deployment,) = chart.of_kind(chart.render_values(given), "Deployment")
            return deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

        one = {"config": {"max_message_bytes": "64MiB"}}
        self.assertEqual(checksum(one), checksum(copy.deepcopy(one) | {"replicas": 5}))
        self.assertNotEqual(checksum(one), checksum({"config": {"max_message_bytes": "65MiB"}}))
        self.assertNotEqual(checksum(one), checksum({}))

    def test_configuration_and_policy_arrive_as_they_were_written(self):
        config = {"max_message_bytes": "64MiB", "reflection": False, "max_batch_items": 64, "encoders": [{"name": "a"}]}
        policy = {"identities": [{"identity": "*", "methods": ["*"], "max_inflight_bytes": 1 << 40}]}
        given = {"config": config, "policy": policy, "tokens": {"secretName": "t"}}
        files = {}
        for rendered in chart.of_kind(chart.render_values(given), "ConfigMap"):
            files |= rendered["data"]
        self.assertEqual({name: json.loads(text) for name, text in files.items()},
                         {"phasor.json": config, "policy.json": policy})

    def test_gpu_is_limited_tolerated_and_used(self):
        documents = chart.render("gpu")
        server, pod = chart.server_of(documents), chart.pod_of(documents)
        self.assertEqual(server["resources"]["limits"]["nvidia.com/gpu"], 1)
        self.assertEqual(chart.flag(server, "backend"), "cuda")
        self.assertEqual(pod["runtimeClassName"], "nvidia")
        self.assertEqual(server["startupProbe"]["failureThreshold"], 120)
        self.assertEqual([t["key"] for t in pod["tolerations"]], ["nvidia.com/gpu"])
        self.assertNotIn("nvidia.com/gpu", chart.server_of(chart.render("default"))["resources"]["limits"])

    def test_taint_of_gpu_nodes_is_tolerated_however_the_gpu_is_shared(self):
        for resource in ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"):
            documents = chart.render_values(chart.values("gpu") | {"gpu": {"enabled": True, "resource": resource}})
            self.assertEqual([t["key"] for t in chart.pod_of(documents)["tolerations"]], ["nvidia.com/gpu"], resource)
            self.assertIn(resource, chart.server_of(documents)["resources"]["limits"])

    def test_openshift_chooses_the_user_and_all_listen_on_ipv6(self):
        documents = chart.render("openshift")
        pods = [chart.pod_of(documents)] + [p["spec"] for p in chart.of_kind(documents, "Pod")]
        for pod in pods:
            self.assertEqual(set(pod["securityContext"]), {"runAsNonRoot", "seccompProfile"})
        server = chart.server_of(documents)
        self.assertEqual(chart.flag(server, "listen"), "[::]:50051")
        self.assertEqual(chart.flag(server, "metrics-listen"), "[::]:9464")
        self.assertEqual(len([a for a in server["args"] if a.startswith("--listen=")]), 1)

    def test_every_probe_setting_can_be_changed(self):
        settings = {
            "startup": {"periodSeconds": 4, "timeoutSeconds": 3},
            "liveness": {"periodSeconds": 21, "timeoutSeconds": 5, "failureThreshold": 6},
            "readiness": {"periodSeconds": 3, "timeoutSeconds": 4, "failureThreshold": 2},
        }
        server = chart.server_of(chart.render_values({"probes": settings, "startupTimeoutSeconds": 30}))
        for name, wanted in settings.items():
            self.assertLessEqual(wanted.items(), server[f"{name}Probe"].items())
        self.assertEqual(server["startupProbe"]["failureThreshold"], 8)  # 4 s each: at least 30 s

    def test_no_selector_of_namespaces_is_not_an_empty_one(self):
        def client_rule(namespaces):
            given = {"networkPolicy": {"enabled": True, "clientNamespaces": namespaces}}
            (policy,) = chart.of_kind(chart.render_values(given), "NetworkPolicy")
            return policy["spec"]["ingress"][0]["from"][0]

        self.assertNotIn("namespaceSelector", client_rule(None))
        self.assertEqual(client_rule({})["namespaceSelector"], {})
        one = {"matchLabels": {"team": "models"}}
        self.assertEqual(client_rule(one)["namespaceSelector"], one)

    def test_more_outgoing_traffic_can_be_allowed(self):
        (policy,) = chart.of_kind(chart.render("everything"), "NetworkPolicy")
        ports = [p["port"] for rule in policy["spec"]["egress"] for p in rule["ports"]]
        self.assertEqual(ports, [53, 53, 4317])

    def test_tables_are_on_one_volume_of_all_pods(self):
        documents = chart.render_values({"tables": {"enabled": True}, "resources": {"limits": {"memory": "4Gi"}}})
        (claim,) = chart.of_kind(documents, "PersistentVolumeClaim")
        self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteMany"])
        self.assertEqual(claim["metadata"]["annotations"]["helm.sh/resource-policy"], "keep")
        (volume,) = [v for v in chart.pod_of(documents)["volumes"] if "persistentVolumeClaim" in v]
        self.assertEqual(volume["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"])
        server = chart.server_of(documents)
        (mount,) = [m for m in server["volumeMounts"] if m["name"] == volume["name"]]
        self.assertEqual(mount["mountPath"], chart.flag(server, "tables-dir"))
        given = {"tables": {"enabled": True, "existingClaim": "mine"}, "resources": {"limits": {"memory": "4Gi"}}}
        own = chart.render_values(given)
        self.assertEqual(chart.of_kind(own, "PersistentVolumeClaim"), [])
        self.assertIn("mine", [v["persistentVolumeClaim"]["claimName"] for v in chart.pod_of(own)["volumes"]])
        self.assertIsNone(chart.flag(chart.server_of(chart.render("default")), "tables-dir"))

    def test_rule_and_dashboard_are_the_files_of_the_repository(self):
        documents = chart.render("everything")
        (rule,) = chart.of_kind(documents, "PrometheusRule")
        alerts = yaml.safe_load((chart.ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8"))
        self.assertEqual(rule["spec"], alerts)
        self.assertEqual(rule["metadata"]["labels"]["release"], "prometheus")
        (shown,) = [c for c in chart.of_kind(documents, "ConfigMap") if c["metadata"]["name"].endswith("-dashboard")]
        self.assertEqual(shown["metadata"]["labels"]["grafana_dashboard"], "1")
        dashboard = (chart.ROOT / "deploy/grafana/phasor.json").read_text(encoding="utf-8")
        self.assertEqual(json.loads(shown["data"]["phasor.json"]), json.loads(dashboard))
        self.assertEqual(chart.of_kind(chart.render("default"), "PrometheusRule"), [])

    def test_extra_objects_may_be_maps_or_templates(self):
        names = [c["metadata"]["name"] for c in chart.of_kind(chart.render("everything"), "ConfigMap")]
        self.assertLessEqual({"of-the-user", "demo-phasor-as-text"}, set(names))

    def test_native_sidecar_starts_before_the_application(self):
        given = copy.deepcopy(chart.values("sidecar"))
        given["sidecar"]["native"] = True
        documents = chart.render_values(given)
        pod = chart.pod_of(documents)
        (server,) = pod["initContainers"]
        self.assertEqual((server["name"], server["restartPolicy"]), ("phasor", "Always"))
        self.assertEqual([c["name"] for c in pod["containers"]], ["model"])
        (deployment,) = chart.of_kind(documents, "Deployment")
        kubernetes_validate.validate(deployment, kubernetes_validate.latest_version(), strict=True)

    def test_native_sidecars_are_refused_where_kubernetes_has_none(self):
        with tempfile.TemporaryDirectory() as directory:
            older = pathlib.Path(directory) / "phasor"
            shutil.copytree(chart.CHART, older)
            checks = older / "templates/_server.tpl"
            text = checks.read_text(encoding="utf-8")
            checks.write_text(text.replace(".Capabilities.KubeVersion.Version", '"v1.28.15"'), encoding="utf-8")
            native = {"sidecar": chart.values("sidecar")["sidecar"] | {"native": True}}
            for name, given in (("rest.enabled", {"rest": {"enabled": True}}), ("sidecar.native", native)):
                with self.assertRaisesRegex(helm_python.HelmError, f"{name}: needs native sidecars"):
                    chart.render_values(given, older)
            chart.render_values(chart.values("sidecar"), older)

    def test_sidecar_shares_memory_and_is_not_on_the_network(self):
        documents = chart.render("sidecar")
        server, pod = chart.server_of(documents), chart.pod_of(documents)
        (app,) = [c for c in pod["containers"] if c["name"] != "phasor"]
        for socket in (chart.flag(server, "listen").removeprefix("unix:"), chart.flag(server, "lease-socket")):
            folder = str(pathlib.PurePosixPath(socket).parent)
            (mount,) = [m for m in app["volumeMounts"] if m["mountPath"] == folder]
            self.assertIn(mount, server["volumeMounts"])
        self.assertIn("/dev/shm", [m["mountPath"] for m in app["volumeMounts"]])
        self.assertEqual(chart.flag(server, "shared-memory"), "true")
        for volume in pod["volumes"]:
            self.assertEqual(volume["emptyDir"]["medium"], "Memory")
            self.assertRegex(volume["emptyDir"]["sizeLimit"], "^[1-9]")
        self.assertIs(pod["shareProcessNamespace"], True)
        self.assertNotIn("grpc", [p["name"] for p in server["ports"]])
        self.assertEqual([s["spec"]["clusterIP"] for s in chart.of_kind(documents, "Service")], ["None"])

    def test_other_charts_can_put_the_server_into_their_pods(self):
        with tempfile.TemporaryDirectory() as folder:
            parent = pathlib.Path(folder) / "parent"
            shutil.copytree(chart.CHART, parent / "charts/phasor")
            (parent / "templates").mkdir()
            about = {"apiVersion": "v2", "name": "parent", "version": "1.0.0",
                     "dependencies": [{"name": "phasor", "version": "0.1.0"}]}
            (parent / "Chart.yaml").write_text(yaml.safe_dump(about))
            (parent / "values.yaml").write_text(yaml.safe_dump({"phasor": {"sidecar": {"enabled": True}}}))
            (parent / "templates/pod.yaml").write_text(
                "apiVersion: v1\nkind: Pod\nmetadata:\n  name: model\nspec:\n  containers:\n"
                "    - name: model\n      image: model\n      volumeMounts:\n"
                '        {{- include "phasor.sidecar.volumeMounts" .Subcharts.phasor | nindent 8 }}\n'
                '    - {{ include "phasor.sidecar.container" .Subcharts.phasor | nindent 6 | trim }}\n'
                '  volumes:\n    {{- include "phasor.sidecar.volumes" .Subcharts.phasor | nindent 4 }}\n'
            )
            documents = chart.render_values({}, path=parent)
        self.assertEqual(chart.of_kind(documents, "Deployment"), [])
        (pod,) = chart.of_kind(documents, "Pod")
        kubernetes_validate.validate(pod, "1.27", strict=True)
        self.assertEqual([c["name"] for c in pod["spec"]["containers"]], ["model", "phasor"])

    def test_notes_warn_of_an_open_server_and_not_of_a_closed_one(self):
        self.assertIn("plaintext", chart.notes({}))
        self.assertIn("every pod of the cluster may call", chart.notes({}))
        self.assertNotIn("WARNING", chart.notes(chart.values("tls")))


class RefusedTest(unittest.TestCase):
    BROKEN = {
        "unknown key": {"replica": 3},
        "unknown nested key": {"tls": {"secret": "x"}},
        "wrong type": {"replicas": "two"},
        "out of range": {"drain": {"delaySeconds": -1}},
        "readiness slower than the delay": {"drain": {"delaySeconds": 2}},
        "not one of the backends": {"server": {"backend": "rocm"}},
        "not a size": {"server": {"maxInflightBytes": "1 GB"}},
        "not a duration": {"server": {"maxConnectionAge": "10 minutes"}},
        "not a quantity": {"resources": {"limits": {"memory": "2GiB"}}},
        "TLS without a secret": {"tls": {"enabled": True}},
        "client certificates without TLS": {"tls": {"clientCertificates": True}},
        "ServiceMonitor without metrics": {"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}},
        "what the chart sets": {"config": {"drain_delay": "1s"}},
        "not an option's name": {"config": {"max-message-bytes": "64MiB"}},
        "not a flag": {"extraArgs": ["-v"]},
        "an update that can never begin": {"updateStrategy": {"maxSurge": 0, "maxUnavailable": "0%"}},
        "policy without labels": {"networkPolicy": {"clientLabels": None}},
        "labels of selectors": {"podLabels": {"app.kubernetes.io/name": "x"}},
        "digest that is none": {"image": {"digest": "latest"}},
        "sidecar without an image": {"sidecar": {"enabled": True, "app": {"name": "model"}}},
        "autoscaling without metrics": {"autoscaling": {"enabled": True}, "metrics": {"enabled": False}},
        "an address that is no host": {"server": {"listenHost": "::"}},
        "an unknown access mode": {"tables": {"accessMode": "ReadOnlyMany"}},
        "tables in the configuration": {"config": {"tables_dir": "/tables"}},
        "sidecar with TLS": {"sidecar": {"enabled": True}, "tls": {"enabled": True, "secretName": "x"}},
    }
    # Comparisons of values, which a schema cannot make: (values, what the message says).
    FAILING = (
        ({"terminationGracePeriodSeconds": 74}, "less than drain.delaySeconds"),
        ({"autoscaling": {"enabled": True, "minReplicas": 11}}, "more than maxReplicas"),
        ({"server": {"maxInflightBytes": "512MiB"}, "autoscaling": {"enabled": True, "metric": "bytesInFlight"}},
         "targetBytesInFlight: a pod never holds 512Mi, because server.maxInflightBytes is 512MiB"),
        ({"policy": {"identities": []}}, "nobody has an identity"),
        ({"extraArgs": ["--drain-timeout=60s"]}, "extraArgs: --drain-timeout is given twice"),
        ({"extraArgs": ["--max-connections=9", "--max-connections=8"]}, "extraArgs: --max-connections is given twice"),
        ({"sidecar": {"enabled": True, "app": {"name": "a", "image": "b", "securityContext": {"runAsUser": 0}}}},
         "shares memory with its own user only"),
        ({"server": {"maxInflightBytes": "2GiB"}}, "2816Mi is less than docs/capacity.md asks for .*, 5327Mi"),
        ({"server": {"poolBytes": "180MiB"}}, "resources.limits.memory: 2816Mi is less .*, 2819Mi"),
        ({"config": {"plan_cache_bytes": "128MiB"}}, "resources.limits.memory: 2816Mi is less .*, 2831Mi"),
        ({"resources": {"limits": {"memory": "2G"}}}, "resources.limits.memory: 2G is less"),
        ({"resources": {"limits": {"memory": 1e9}}}, "resources.limits.memory: 1e.09 is less"),
        ({"tables": {"enabled": True}}, "and tables.maxBytes.*, 3791Mi"),
        ({"tables": {"enabled": True, "accessMode": "ReadWriteOnce"}, "resources": {"limits": {"memory": "4Gi"}}},
         "tables.accessMode: ReadWriteOnce is for one pod"),
        ({"probes": {"readiness": {"periodSeconds": 20, "failureThreshold": 2}}}, "not within drain.delaySeconds, 40"),
    )

    def test_schema_refuses(self):
        with helm_python.Chart.load(chart.CHART) as loaded:
            loaded.validate_schema({})
            for what, given in self.BROKEN.items():
                with self.subTest(what), self.assertRaises(helm_python.HelmError):
                    loaded.validate_schema(given)

    def test_memory_of_all_values_and_manifests_is_what_docs_capacity_asks_for(self):
        def mib(quantity):  # "2Gi" or "2GiB"
            return int(re.match(r"\d+", quantity)[0]) * {"Gi": 1024, "Mi": 1}[quantity.removesuffix("B")[-2:]]

        def needed(container):  # with the plan cache of the server's default, and 1024 connections of 24 KiB
            sizes = (chart.flag(container, name) for name in ("max-inflight-bytes", "pool-bytes", "max-tables-bytes"))
            budget, pool, tables = (mib(size or "0Mi") for size in sizes)
            return 15 + 2.5 * budget + pool + 64 + 24 + tables + 512 * container["resources"]["limits"].get("nvidia.com/gpu", 0)

        runtime = yaml.safe_load((chart.ROOT / "deploy/kserve/serving-runtime.yaml").read_text(encoding="utf-8"))
        containers = [chart.server_of(chart.render(name)) for name in chart.VALUE_SETS]
        containers += [chart.server_of(MANIFEST), runtime["spec"]["containers"][0]]
        for container in containers:
            self.assertGreaterEqual(mib(container["resources"]["limits"]["memory"]), needed(container))
        for container in (containers[0], *containers[-2:]):  # what runs without being configured
            self.assertGreaterEqual(mib(container["resources"]["requests"]["memory"]), needed(container))

    def test_one_pod_may_keep_its_tables_to_itself(self):
        given = {"tables": {"enabled": True, "accessMode": "ReadWriteOnce"}, "replicas": 1,
                 "updateStrategy": {"maxSurge": 0, "maxUnavailable": 1}, "resources": {"limits": {"memory": "4Gi"}}}
        self.assertEqual(len(chart.of_kind(chart.render_values(given), "PersistentVolumeClaim")), 1)

    def test_templates_refuse(self):
        for given, message in self.FAILING:
            with self.assertRaisesRegex(helm_python.HelmError, message):
                chart.render_values(given)


class DocumentTest(unittest.TestCase):
    """docs/kubernetes.md."""

    @classmethod
    def setUpClass(cls):
        text = (chart.ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
        blocks = [b for b in re.findall(r"```yaml\n(.*?)```", text, re.S) if "{{" not in b]
        cls.examples = [yaml.safe_load(b) for b in blocks]

    def test_examples_of_values_are_accepted(self):
        values = [e for e in self.examples if "rules" not in e]
        self.assertGreater(len(values), 2)
        for example in values:
            self.assertNotEqual(chart.render_values(example), [])

    def test_adapter_makes_the_metrics_that_the_autoscaler_asks_for(self):
        (adapter,) = [e for e in self.examples if "rules" in e]
        made = {
            rule.get("name", {}).get("as") or re.match(r"\w+", rule["seriesQuery"])[0] for rule in adapter["rules"]["custom"]
        }
        asked = set()
        for metric in ("queueTime", "bytesInFlight"):
            documents = chart.render_values({"autoscaling": {"enabled": True, "metric": metric}})
            (scaler,) = chart.of_kind(documents, "HorizontalPodAutoscaler")
            asked.add(scaler["spec"]["metrics"][0]["pods"]["metric"]["name"])
        self.assertEqual(made, asked)


class PlainManifestTest(unittest.TestCase):
    def test_defaults_say_all_that_the_plain_manifest_says(self):
        documents = chart.render_values({"image": {"tag": "latest"}}, release="phasor")
        for plain in MANIFEST:
            (mine,) = [
                d for d in documents
                if (d["kind"], d["metadata"]["name"]) == (plain["kind"], plain["metadata"]["name"])
            ]
            self.assertEqual(_missing(plain, mine), [], plain["kind"])


def _missing(wanted, given, path=""):
    """Where `given` lacks or contradicts what `wanted` says. Lists of text are sets, others are matched in order."""
    if isinstance(wanted, dict):
        found = [f"{path}.{k}: missing" for k in wanted if k not in given]
        return found + [e for k in wanted if k in given for e in _missing(wanted[k], given[k], f"{path}.{k}")]
    if isinstance(wanted, list) and all(isinstance(w, str) for w in wanted):
        return [f"{path}: {w} is missing" for w in wanted if w not in given]
    if isinstance(wanted, list):
        if len(wanted) > len(given):
            return [f"{path}: {len(given)} entries, {len(wanted)} wanted"]
        return [e for i, w in enumerate(wanted) for e in _missing(w, given[i], f"{path}[{i}]")]
    return [] if wanted == given else [f"{path}: {given!r}, {wanted!r} wanted"]


if __name__ == "__main__":
    unittest.main()
