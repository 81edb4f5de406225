# SPDX-License-Identifier: Apache-2.0
"""Has checkov, an independent linter, read what the chart renders and the plain manifest. Each of
its findings is explained here, or the test fails; so does an explanation that is no longer needed."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml

    import chart
except ImportError as error:
    print(f"SKIP: {error}; ./dev test installs it (tests/requirements.txt)")
    sys.exit(77)

CHECKOV = chart.ROOT / "build/.venv-checkov/bin/checkov"
if not CHECKOV.exists():
    print(f"SKIP: {CHECKOV.relative_to(chart.ROOT)} is not there; ./dev test installs it (tests/deploy/checkov.txt)")
    sys.exit(77)

# Findings by their number: "value set:kind" that may have them, and why.
EXPLAINED = {
    "CKV2_K8S_6": (r".*:Pod", "the pod of `helm test` opens no port; networkPolicy.enabled closes those of the server"),
    "CKV_K8S_8": (r".*:Pod|sidecar:Deployment", "the pod of `helm test` runs once; the application of the sidecar brings its own probes"),
    "CKV_K8S_9": (r".*:Pod|sidecar:Deployment", "as CKV_K8S_8"),
    "CKV_K8S_11": (r".*", "a limit on CPU throttles calls while the node has idle cores; memory is limited"),
    "CKV_K8S_14": (r"plain:Deployment", "the plain manifest is an example; the chart takes the version of the server"),
    "CKV_K8S_15": (r".*", "Always is a value; tags of versions do not move"),
    "CKV_K8S_21": (r".*", "the namespace is that of the release, which Helm sets"),
    "CKV_K8S_22": (r"sidecar:Deployment", "the application of the example; the server's file system is read-only"),
    "CKV_K8S_25": (r"node:DaemonSet", "the container that prepares the directory has CHOWN and nothing else"),
    "CKV_K8S_40": (r"openshift:(Deployment|Pod)", "OpenShift chooses the user"),
    "CKV_K8S_43": (r".*", "image.digest is a value; only who has pushed an image knows its digest"),
}


def findings(folder):
    """(number, "value set:kind") of each finding in the YAML files of a folder."""
    run = subprocess.run(
        [CHECKOV, "-d", folder, "--framework", "kubernetes", "--quiet", "--skip-download", "-o", "json"],
        capture_output=True, text=True, check=False, timeout=300, env=os.environ | {"LOG_LEVEL": "ERROR", "HOME": folder},
    )
    report = json.loads(run.stdout)
    if report["summary"]["parsing_errors"] or not report["summary"]["resource_count"]:
        raise AssertionError(f"checkov has read nothing: {report['summary']}")
    return {
        (found["check_id"], f"{pathlib.Path(found['file_path']).stem}:{found['resource'].split('.')[0]}"): found["check_name"]
        for found in report["results"]["failed_checks"]
    }


class CheckovTest(unittest.TestCase):
    def test_every_finding_is_explained_and_every_explanation_needed(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in chart.VALUE_SETS:
                rendered = yaml.safe_dump_all(chart.render(name))
                (pathlib.Path(folder) / f"{name}.yaml").write_text(rendered, encoding="utf-8")
            plain = (chart.ROOT / "deploy/kubernetes/phasor.yaml").read_text(encoding="utf-8")
            (pathlib.Path(folder) / "plain.yaml").write_text(plain, encoding="utf-8")
            found = findings(folder)
        unexplained = [
            (number, where, name) for (number, where), name in found.items()
            if number not in EXPLAINED or not re.fullmatch(EXPLAINED[number][0], where)
        ]
        self.assertEqual(unexplained, [])
        self.assertEqual({number for number, _ in found}, set(EXPLAINED))
        print(f"MEASURED {len(EXPLAINED)} kinds of findings, all explained")

    def test_a_privileged_container_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            documents = [yaml.safe_load(yaml.safe_dump(d)) for d in chart.render("default")]
            chart.server_of(documents)["securityContext"]["privileged"] = True
            (pathlib.Path(folder) / "default.yaml").write_text(yaml.safe_dump_all(documents), encoding="utf-8")
            self.assertIn(("CKV_K8S_16", "default:Deployment"), findings(folder))


if __name__ == "__main__":
    unittest.main()
