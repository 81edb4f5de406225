# SPDX-License-Identifier: Apache-2.0
"""Checks the promises of MoveKeys. Uses the results of the last `./dev test`, of `./dev bench move-keys` and of the
gate on transformers (`./dev conformance`)."""

import acceptance
from acceptance import ROOT, Fail, Skip, of_benchmark, of_test

TOPIC = "move-keys"


def rows_of(name):
    """The last line of a log of `./dev conformance` whose rows all pass."""
    log = ROOT / "build/conformance" / name
    if not log.exists():
        raise Skip("./dev conformance has not run here")
    lines = log.read_text(encoding="utf-8").splitlines()
    if any(line.startswith("FAIL") for line in lines) or not lines:
        raise Fail("; ".join(line for line in lines if line.startswith("FAIL")) or "no rows")
    return lines[-1]


def gate():
    """every rope type of transformers: two prefills agree under their spec, and under no other theta, scaling, pairing or window"""
    return rows_of("moves.txt")


def gate_on_llama():
    """check-cache on states that llama.cpp saved: right caches fit, a wrong base is named, and so is the amplitude of a shift under YaRN"""
    return rows_of("llama_states.txt")


CHECKS = [
    of_test("truth in 320 bits: every code, named layout, mode and family of specs costs what exact moves cost, once and eight times", r"(asan/)?move_truth_test"),
    of_test("every code, layout and mode against rotations in double precision; eight moves stay within their table", r"(asan/)?cpu_move(_stop)?_test"),
    of_test("every named layout has the distances of the shape that its engines use", r"(asan/)?key_layouts_test"),
    of_test("block codes have gguf's bytes", r"(asan/)?key_rows_test"),
    of_test("10,000 random requests, right and hostile: refused, or only what they name changes; scalar and SIMD give the same bytes", r"(asan/)?move_random_test"),
    of_test("overlap by interval arithmetic is what sets of bytes say", r"(asan/)?key_overlap_test"),
    of_test("errors name the field; fingerprints are pinned; shared pages are sources of copies only", r"(asan/)?move_(keys|tokens)_test"),
    of_test("inline, leased, in named regions and in process, calls, batches and streams give the same bytes", r"e2e_client_move_test"),
    of_test("a client that cancels or is killed half way leaves whole tokens and nothing else changed; a repeated move does what is left", r"(asan/)?e2e_move_cancel_test"),
    of_test("slot positions: wrong ones are refused before the first byte, tokens that are done are left out", r"(asan/)?slot_positions_test"),
    of_test("a KV store in sixty lines of C++: leased memory, block tables, the check for CI", r"(asan/|tsan/)?example_move_keys(_leased)?"),
    of_test(
        "caches of transformers, sequences of llama.cpp and chunks of LMCache: decoding goes on as if computed again, "
        "also where llama.cpp's own shift is wrong or ends its process",
        r"python\.moves",
    ),
    gate,
    gate_on_llama,
    of_test("phasor check-cache: right caches of every code fit; of a planted fault, or two, the diagnosis names exactly that",
            r"(asan/)?cli_check_cache_test"),
    of_test("its readers refuse files that end anywhere and survive random changes", r"(asan/)?cli_(llama_state|description|dump)_test"),
    of_benchmark("move-keys", "moves beside memcpy of the same bytes by the same threads; one call for 32 layers and 64 runs beside a call for each"),
    of_benchmark("move-keys-peers", "moves of all layers beside LMCache's torch operation and ggml's K-shift, in one run"),
]

if __name__ == "__main__":
    acceptance.run(TOPIC, CHECKS)
