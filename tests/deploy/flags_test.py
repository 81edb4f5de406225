# SPDX-License-Identifier: Apache-2.0
"""flags_test.py PHASOR_SERVER: checks that the server has every flag that the chart and the
manifests set, and every option that they reserve or show as an example."""

import json
import re
import subprocess
import sys
import unittest

try:
    import yaml

    import chart
except ImportError as error:
    print(f"SKIP: {error}; ./dev test installs it (tests/requirements.txt)")
    sys.exit(77)

SERVER = sys.argv.pop(1)


class FlagsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        told = subprocess.run([SERVER, "--help"], check=True, capture_output=True, text=True).stdout
        cls.known = set(re.findall(r"--([a-z][a-z0-9-]*)", told))

    def test_chart_sets_flags_that_exist(self):
        for name in chart.VALUE_SETS:
            with self.subTest(values=name):
                self.assertEqual(_flags(chart.server_of(chart.render(name))) - self.known, set())

    def test_manifests_set_flags_that_exist(self):
        for path in ("deploy/kubernetes/phasor.yaml", "deploy/kserve/serving-runtime.yaml"):
            document = next(yaml.safe_load_all((chart.ROOT / path).read_text(encoding="utf-8")))
            spec = document["spec"]
            for container in spec.get("template", {}).get("spec", spec)["containers"]:
                self.assertEqual(_flags(container) - self.known, set(), path)

    def test_options_of_configurations_exist(self):
        schema = json.loads((chart.CHART / "values.schema.json").read_text(encoding="utf-8"))
        options = set(schema["properties"]["config"]["propertyNames"]["not"]["enum"])
        options |= set(chart.values("everything")["config"])
        self.assertEqual({option.replace("_", "-") for option in options} - self.known, set())


def _flags(container):
    return {re.match(r"--([a-z0-9-]+)", argument)[1] for argument in container["args"]}


if __name__ == "__main__":
    unittest.main()
