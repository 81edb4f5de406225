# SPDX-License-Identifier: Apache-2.0
"""with_grpcio.py ADDRESS: the same call with stubs generated from proto/inference and nothing else:

    mkdir -p stubs
    python -m grpc_tools.protoc -I proto --python_out stubs --grpc_python_out stubs proto/inference/*.proto
    PYTHONPATH=stubs python client/python/with_grpcio.py 127.0.0.1:50051
"""

import array
import sys

import grpc
from inference import grpc_service_pb2 as messages
from inference import grpc_service_pb2_grpc as stubs


def main(address):
    channel = grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)])
    service = stubs.GRPCInferenceServiceStub(channel)

    request = messages.ModelInferRequest(model_name="timestep-sin-cos")
    request.parameters["dim"].int64_param = 128
    request.inputs.add(name="POSITIONS", datatype="INT64", shape=[4])
    request.raw_input_contents.append(array.array("q", [10, 12, 16, 100]).tobytes())
    response = service.ModelInfer(request)

    rows = array.array("f", response.raw_output_contents[0])
    print(response.outputs[0].name, list(response.outputs[0].shape), rows[:2].tolist())


if __name__ == "__main__":
    main(sys.argv[1])
