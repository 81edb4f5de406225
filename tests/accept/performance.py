# SPDX-License-Identifier: Apache-2.0
"""Checks the promises about speed. Uses the results of the last `./dev test` and of the last `./dev bench` of each name."""

import acceptance
from acceptance import of_benchmark, of_test

TOPIC = "performance"

CHECKS = [
    of_test("no path of a small call and no kernel has more instructions than its limit", r"bench_instructions"),
    of_test("a count above its limit fails; two commits are compared in turns", r"bench_(count|compare)"),
    of_test("every target returns the reference's bytes, with the accuracy that is promised", r"(encode|rotary|accuracy|golden)_test"),
    of_benchmark("kernels", "kernels beside memset and memmove"),
    of_benchmark("rpc", "calls beside the bare wire and a handler with generated messages"),
    of_benchmark("stream", "items of a stream and chunks beside calls one by one"),
    of_benchmark("inproc", "calls in process beside the backend alone"),
    of_benchmark("cores", "the server on more and more cores beside the echo"),
    of_benchmark("shm", "calls in shared memory, and calls that the client stages"),
    of_benchmark("peers", "rotations and Encode beside other libraries"),
    of_benchmark("triton", "rotations beside Triton's backends, called by its clients"),
]

if __name__ == "__main__":
    acceptance.run(TOPIC, CHECKS)
