# SPDX-License-Identifier: Apache-2.0
"""Checks what clients of the Open Inference Protocol may expect."""

import re
import subprocess

import acceptance
from acceptance import ROOT, Fail, Skip, cannot, command, of_benchmark, of_full, of_test, promised

TOPIC = "oip"
BUILD = "build/release"


class Clients:
    """tests/oip/clients_test.py, run once."""

    results = None

    @classmethod
    def passed(cls, *names):
        if cls.results is None:
            cls.results = cls._run()
        failed = [name for name in names if cls.results.get(name) != "ok"]
        if failed:
            raise Fail(", ".join(f"{name}: {cls.results.get(name, 'no such test')}" for name in failed))
        return f"{len(names)} tests passed"

    @staticmethod
    def _run():
        arguments = ["tests/oip/run.sh", BUILD, "-v"]
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL, check=False)
        if done.returncode == 77:
            raise Skip(done.stdout.strip().split("\n")[-1])
        return dict(re.findall(r"^(test_\w+) \(.*?\)(?:\n.*?)? \.\.\. (\w+)$", done.stderr, re.MULTILINE))


def by_clients(promise, *names):
    return promised(promise, lambda: Clients.passed(*(f"test_{name}" for name in names)))


def by_server(promise, suite, least):
    """The tests of one suite of server_oip_test, of which there are at least so many."""

    def check():
        out = command(f"{BUILD}/tests/server/oip/server_oip_test", f"--gtest_filter={suite}.*", timeout=300)
        passed = re.search(r"\[  PASSED  \] (\d+) tests", out)
        if passed is None or int(passed[1]) < least:
            raise Fail(out[-300:])
        return f"{passed[1]} tests passed"

    return promised(promise, check)


def fuzzed():
    """ModelInfer survives mutations of its bytes and fields"""
    out = command(f"{BUILD}/tests/fuzz/request_mutation_test", timeout=600)
    return re.search(r"\d+ mutations from seed \d+, \d+ computed", out)[0]


CHECKS = [
    by_clients("The wire is the one inside tritonclient", "the_protocol_is_that_of_the_client"),
    by_clients(
        "Every call answers, and what is not built says so",
        "server_and_models_are_described",
        "what_is_not_built_says_so",
    ),
    by_clients(
        "Each preset and each configured encoder is a model, through a reload too",
        "server_and_models_are_described",
        "encoders_are_models",
        "a_reload_changes_adds_and_removes_models",
    ),
    by_clients(
        "Every type of positions, encodings, embeddings, queries and keys, against float64",
        "positions_of_every_type_encode_alike",
        "encodings_come_in_every_type_and_batch",
        "embeddings_are_added_in_every_type",
        "queries_and_keys_rotate_in_every_type_and_back",
        "heads_may_come_before_tokens",
        "biases_are_slopes_times_distances",
        "numbers_of_the_message_are_as_good_as_bytes",
    ),
    by_clients(
        "System shared memory in and out, and its checks",
        "shared_memory_goes_in_and_out",
        "shared_memory_and_bytes_mix_in_one_request",
        "shared_memory_is_checked",
        "memory_that_shrinks_does_not_end_the_server",
    ),
    by_server("CUDA shared memory on a fake device: registered, checked, computed where it lies, dirty after a fault in place", "DeviceTensorsTest", 10),
    by_clients("Streams", "a_stream_answers_in_order_and_survives_errors"),
    by_clients("Errors", "errors_have_codes_and_name_the_field"),
    of_full("1.9 GB in one request, and then a small one", r"oip\.large"),
    by_clients(
        "What clients rely on without saying so",
        "outputs_come_in_the_order_that_was_asked_for",
        "outputs_without_their_optional_input_are_left_out",
        "every_output_has_a_raw_entry_and_no_numbers",
        "parameters_of_the_clients_are_accepted_and_other_reserved_ones_not",
        "requests_of_any_size_come_back_on_one_connection",
        "device_handles_arrive_as_64_bytes",
    ),
    by_clients("Statistics grow as profilers need it", "statistics_grow_with_every_inference"),
    by_clients(
        "Examples with tritonclient and with plain stubs, and bfloat16 without a loop",
        "the_example_with_tritonclient_runs",
        "the_example_with_plain_stubs_runs",
        "bfloat16_rounds_to_nearest_and_back_exactly",
    ),
    by_server(
        "The same tensor through our own API and through this protocol: same bytes, every model and type, over every transport",
        "SameBytesTest",
        4,
    ),
    fuzzed,
    of_full("perf_analyzer, 1, 4 and 16 at once, in the message and in system shared memory", r"oip\.perf_analyzer"),
    of_benchmark("triton", "Triton Inference Server serving the same rotation, called by the same client: 5 times for a token, 3 times for 16 MiB"),
    of_test("KServe's resources fit their published schemas", r"deploy\.custom_resources"),
    cannot("an InferenceService in a cluster", "needs a cluster with KServe"),
]

if __name__ == "__main__":
    targets = ["phasor-server", "server_oip_test", "request_mutation_test"]
    subprocess.run(["cmake", "--build", BUILD, "--target", *targets], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    acceptance.run(TOPIC, CHECKS)
