# SPDX-License-Identifier: Apache-2.0
"""serve_pytriton.py PORT LIBRARY STUBS: serves the model with PyTriton in this process until SIGTERM."""

import pathlib
import sys

import numpy as np
import rope_models
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/accept"))
import running


def main(port, library, stubs):
    rope = rope_models.make(library, stubs)

    def infer(requests):
        return [{"Q_OUT": rope(request["POSITIONS"], request["Q"])} for request in requests]

    heads = (-1, 32, 2 * rope_models.HALF)
    config = TritonConfig(
        grpc_address="127.0.0.1",
        grpc_port=int(port),
        http_address="127.0.0.1",
        http_port=running.free_port(),  # the port where PyTriton asks whether Triton is ready
        allow_metrics=False,
    )
    # Unrestricted, because shared memory would need a token otherwise.
    with Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as triton:
        triton.bind(
            model_name="rope",
            infer_func=infer,
            inputs=[Tensor(name="POSITIONS", dtype=np.int64, shape=(-1,)), Tensor(name="Q", dtype=np.float32, shape=heads)],
            outputs=[Tensor(name="Q_OUT", dtype=np.float32, shape=heads)],
            config=ModelConfig(batching=False),
        )
        triton.serve()


main(*sys.argv[1:])
