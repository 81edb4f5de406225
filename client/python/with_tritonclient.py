# SPDX-License-Identifier: Apache-2.0
"""with_tritonclient.py ADDRESS: encodes timesteps and rotates a query and a key with Triton's own client."""

import sys

import ml_dtypes
import numpy as np
import tritonclient.grpc as grpcclient


def tensor(name, datatype, values):
    return grpcclient.InferInput(name, list(values.shape), datatype).set_data_from_numpy(values)


def main(address):
    client = grpcclient.InferenceServerClient(address)

    # Rows of sines and cosines. `dim` is a field that the preset leaves open.
    steps = np.array([10, 12, 16, 100], np.int64)
    result = client.infer("timestep-sin-cos", [tensor("POSITIONS", "INT64", steps)], parameters={"dim": 128})
    rows = result.as_numpy("ENCODING")
    print("ENCODING", rows.shape, rows[0, :2])

    # Rotary embeddings of Llama 3.1: [tokens, heads, head_dim].
    positions = np.arange(5, dtype=np.int64)
    q = np.ones((5, 4, 128), np.float32)
    k = np.ones((5, 1, 128), np.float32)
    inputs = [tensor("POSITIONS", "INT64", positions), tensor("Q", "FP32", q), tensor("K", "FP32", k)]
    result = client.infer("llama-3.1-8b", inputs)
    print("Q_OUT", result.as_numpy("Q_OUT").shape, "K_OUT", result.as_numpy("K_OUT").shape)

    # The same in bfloat16. tritonclient's own conversion cuts off the lower half, so this sets what
    # it would set.
    inputs[1] = grpcclient.InferInput("Q", list(q.shape), "BF16")
    inputs[1]._raw_content = q.astype(ml_dtypes.bfloat16).tobytes()
    result = client.infer("llama-3.1-8b", inputs[:2])
    rotated = np.frombuffer(result.get_response().raw_output_contents[0], ml_dtypes.bfloat16).reshape(q.shape)
    print("BF16", rotated[4, 0, :2].astype(np.float32))


if __name__ == "__main__":
    main(sys.argv[1])
