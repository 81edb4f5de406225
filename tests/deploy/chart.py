# SPDX-License-Identifier: Apache-2.0
"""Renders deploy/helm/phasor with Helm's own library, and finds objects in the result."""

import functools
import pathlib

import helm_python
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/phasor"
VALUE_SETS = ("default", "gpu", "sidecar", "node", "tls", "gateway", "everything", "openshift")
# Kinds that Kubernetes itself does not have. Their schemas are those of their projects (crd_test.py).
CUSTOM = ("ServiceMonitor", "PrometheusRule", "Certificate", "ScaledObject", "GRPCRoute")


def values(name):
    """The values of one set; the defaults are no values at all."""
    if name == "default":
        return {}
    return yaml.safe_load((CHART / f"ci/{name}-values.yaml").read_text(encoding="utf-8"))


def render_values(given, path=CHART, release="demo"):
    """Documents of the chart with these values, checked by its schema first. helm_python.HelmError: refused."""
    with helm_python.Chart.load(path) as chart:
        chart.validate_schema(given)
        rendered = chart.render(given, name=release, namespace="apps")
    documents = []
    for file, text in sorted(rendered.items()):
        if not file.endswith("NOTES.txt"):
            documents += [document for document in yaml.safe_load_all(text) if document]
    return documents


@functools.lru_cache
def _rendered(name):
    return render_values(values(name))


def render(name):
    """Documents of one value set. Not to be changed."""
    return _rendered(name)


def notes(given):
    with helm_python.Chart.load(CHART) as chart:
        return chart.render(given, name="demo", namespace="apps")["phasor/templates/NOTES.txt"]


def of_kind(documents, kind):
    return [document for document in documents if document["kind"] == kind]


def workload_of(documents):
    """The Deployment or DaemonSet."""
    (workload,) = of_kind(documents, "Deployment") + of_kind(documents, "DaemonSet")
    return workload


def pod_of(documents):
    """The spec of its pods."""
    return workload_of(documents)["spec"]["template"]["spec"]


def server_of(documents):
    """The server's container."""
    (server,) = [c for c in pod_of(documents)["containers"] if c["name"] == "phasor"]
    return server


def flag(container, name):
    """The value of a flag, the last one given; None when it is not."""
    given = [a.split("=", 1)[1] for a in container["args"] if a.startswith(f"--{name}=")]
    return given[-1] if given else None


def seconds(container, name):
    return int(flag(container, name).removesuffix("s"))
