# SPDX-License-Identifier: Apache-2.0
"""The model.py of Triton's own Python backend. triton_servers.py copies it into a model repository."""

import json
import sys

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, arguments):
        parameters = {key: p["string_value"] for key, p in json.loads(arguments["model_config"])["parameters"].items()}
        sys.path.insert(0, parameters["folder"])
        import rope_models

        self.rope = rope_models.make(parameters["library"], parameters["stubs"])

    def execute(self, requests):
        answers = []
        for request in requests:
            positions, q = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("POSITIONS", "Q"))
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Q_OUT", self.rope(positions, q))]))
        return answers
