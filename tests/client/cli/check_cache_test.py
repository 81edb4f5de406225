# SPDX-License-Identifier: Apache-2.0
"""check_cache_test.py PHASOR: `phasor check-cache` against caches that written_caches.py makes without Phasor. A right cache
passes; a cache with a planted fault fails, and the diagnosis names that fault and no other."""

import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

from written_caches import (CODES, DISTANCE, HEAD_DIM, HEADS, LAYERS, LLAMA, LLAMA3, TOKENS, YARN, YARN_AMPLITUDE, Rope, flat, hnd, llama_cache,
                            llama_sequence_data, llama_sequence_file, llama_session_file, nhd, npy, prompt, rotated, safetensors)  # fmt: skip

PHASOR = sys.argv.pop(1) if len(sys.argv) > 1 else ""


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.prompts = [prompt(layer) for layer in range(LAYERS)]

    def write(self, name, data):
        (self.folder / name).write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        return str(self.folder / name)

    def run_phasor(self, *arguments):
        done = subprocess.run([PHASOR, "check-cache", "--json", *map(str, arguments)], capture_output=True, text=True)
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    def save(self, name, ropes, offset, code="f32", order=nhd):
        """One .npy a layer, or a file of bytes for codes that .npy does not have. Returns the pattern."""
        descr = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}.get(code)
        shape = (TOKENS, HEADS, HEAD_DIM) if order is nhd else (HEADS, TOKENS, HEAD_DIM)
        for layer, rope in enumerate(ropes):
            data = CODES[code](order(rotated(self.prompts[layer], rope, offset)))
            suffix = "npy" if descr else "bin"
            self.write(f"{name}.{layer}.{suffix}", npy(data, descr, shape) if descr else data)
        return str(self.folder / f"{name}.{{layer}}.{suffix}")

    def config(self, **more):
        return self.write("config.json", LLAMA | more)

    def check(self, config, ropes_at_0, ropes_moved, *more, moved_by=DISTANCE, said=DISTANCE, code="f32"):
        """Checks caches of two engines, or of one at two offsets."""
        at_0, moved = self.save("a", ropes_at_0, 0, code), self.save("b", ropes_moved, moved_by, code)
        return self.run_phasor("--config", config, "--layout", "nhd", "--input", at_0, "--to-input", moved, "--to", said, *more)

    def assert_fits(self, result):
        status, report, error = result
        self.assertEqual(status, 0, (error, report))
        self.assertTrue(report["fits"])
        self.assertEqual([layer["bad_rows"] for layer in report["layers"]], [0] * len(report["layers"]))

    def assert_diagnosed(self, result, *changes, says=""):
        """One diagnosis of all layers with exactly these changes."""
        status, report, error = result
        self.assertEqual(status, 1, (error, report))
        self.assertFalse(report["fits"])
        self.assertEqual([d["changes"] for d in report["diagnoses"]], [list(changes)], report["diagnoses"])
        self.assertTrue(report["diagnoses"][0]["fits"])
        self.assertIn(says, report["diagnoses"][0]["says"])
        self.assertIn(says, error)

    def every(self, rope):
        return [rope] * LAYERS


class RightCaches(Case):
    def test_every_code_fits(self):
        for code in ("f32", "f16", "bf16"):
            with self.subTest(code):
                self.assert_fits(self.check(self.config(), self.every(Rope()), self.every(Rope()), code=code))
        sizes = ("--pages", 1, "--page-size", TOKENS, "--heads", HEADS)
        for code in ("q8_0", "q4_0"):
            with self.subTest(code):
                result = self.check(self.config(), self.every(Rope()), self.every(Rope()), "--code", code.replace("_", "-"), *sizes, code=code)
                self.assert_fits(result)

    def test_scaled_models_fit(self):
        for name, parameters in (("llama3", LLAMA3), ("yarn", YARN)):
            with self.subTest(name):
                rope = Rope(scaling=name, amplitude=YARN_AMPLITUDE if name == "yarn" else 1)
                self.assert_fits(self.check(self.config(rope_scaling=parameters), self.every(rope), self.every(rope)))

    def test_layers_without_rotation_are_compared_as_they_are(self):
        smol = LLAMA | {"model_type": "smollm3", "no_rope_layers": [1, 0]}
        still = Rope(theta=1e300, dim=2)
        still.frequencies = [0.0]
        config = self.write("smol.json", smol)
        self.assert_fits(self.check(config, [Rope(), still], [Rope(), still]))
        # An engine that rotates that layer, too.
        status, report, _ = self.check(config, [Rope(), Rope()], [Rope(), Rope()])
        self.assertEqual(status, 1)
        self.assertEqual([(d["layers"], d["changes"]) for d in report["diagnoses"]], [([1], ["spec"])])

    def test_safetensors_by_pattern_and_flags_instead_of_a_configuration(self):
        for name, offset in (("a", 0), ("b", DISTANCE)):
            tensors = {}
            for layer in range(LAYERS):
                keys = hnd(rotated(self.prompts[layer], Rope(), offset))
                tensors[f"model.layers.{layer}.keys"] = ("BF16", [1, HEADS, TOKENS, HEAD_DIM], CODES["bf16"](keys))
                tensors[f"model.layers.{layer}.other"] = ("F32", [1], struct.pack("<f", 1))
            self.write(f"{name}.safetensors", safetensors(tensors))
        files = ("--input", self.folder / "a.safetensors", "--to-input", self.folder / "b.safetensors")
        result = self.run_phasor("--preset", "rope-half-split", "--head-dim", HEAD_DIM, "--rope-theta", 500000, "--layout", "hnd",
                                 "--layers", LAYERS, "--tensor", "model.layers.{layer}.keys", "--to", DISTANCE, *files)
        self.assert_fits(result)
        self.assertEqual(len(result[1]["layers"]), LAYERS)

    def test_one_cache_with_two_ranges_of_pages(self):
        # Pages of 8 slots: the prompt at 0 in pages 5, 1, 3, and at 1000 in pages 0, 2, 4.
        for layer in range(LAYERS):
            pages = [[[[0.0] * HEAD_DIM] * HEADS] * 8 for _ in range(6)]
            for table, offset in (((5, 1, 3), 0), ((0, 2, 4), DISTANCE)):
                keys = rotated(self.prompts[layer], Rope(), offset)
                for i, page in enumerate(table):
                    pages[page] = keys[8 * i : 8 * i + 8]
            self.write(f"pool.{layer}.npy", npy(CODES["f16"](flat(pages)), "<f2", (6, 8, HEADS, HEAD_DIM)))
        result = self.run_phasor("--config", self.config(), "--input", self.folder / "pool.{layer}.npy", "--layout", "nhd", "--to", DISTANCE,
                                 "--block-table", "5,1,3", "--to-block-table", "0,2,4")
        self.assert_fits(result)
        self.assertEqual(result[1]["layers"][0]["tokens"], TOKENS)

    def test_a_description_names_files_layouts_and_codes(self):
        # K and V of a slot side by side, padded pages of 20 slots' bytes, both layers in one file behind 64 bytes.
        row = 2 * HEAD_DIM * 2
        for name, offset in (("a", 0), ("b", DISTANCE)):
            data = b"\xff" * 64
            for layer in range(LAYERS):
                keys = rotated(self.prompts[layer], Rope(), offset)
                for page in range(TOKENS // 8):
                    slots = b""
                    for token in keys[8 * page : 8 * page + 8]:
                        slots += b"".join(CODES["f16"](head) + b"\x3c" * (row // 2) for head in token)
                    data += slots + b"\xee" * (12 * HEADS * row)
            self.write(f"{name}.bin", data)
            description = {"file": f"{name}.bin", "layout": "vllm-lbnhc", "code": "float16", "pages": 3, "page_size": 8, "heads": HEADS,
                           "page_bytes": 20 * HEADS * row,
                           "layers": [{"layer": n, "offset_bytes": 64 + n * 3 * 20 * HEADS * row} for n in range(LAYERS)]}
            self.write(f"{name}.json", description)
        result = self.run_phasor("--config", self.config(), "--input", self.folder / "a.json", "--to-input", self.folder / "b.json", "--to", DISTANCE)
        self.assert_fits(result)


class PlantedFaults(Case):
    def test_another_base(self):
        for theta, says in ((10000.0, "rope_theta 10000 in place of 500000"), (1e6, "rope_theta 1000000")):
            with self.subTest(theta):
                wrong = self.every(Rope(theta))
                self.assert_diagnosed(self.check(self.config(), wrong, wrong), "rope_theta", says=says)

    def test_the_base_of_the_other_kind_of_layers(self):
        config = self.write("gemma.json", {
            "model_type": "gemma3_text", "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": HEADS, "head_dim": HEAD_DIM,
            "num_hidden_layers": LAYERS, "rope_theta": 1000000.0, "rope_local_base_freq": 30000.0,
            "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 32768})
        right = [Rope(30000.0), Rope(1e6)]
        self.assert_fits(self.check(config, right, right))
        wrong = [Rope(1e6), Rope(1e6)]  # layer 1's rotation for all layers
        status, report, _ = self.check(config, wrong, wrong)
        self.assertEqual(status, 1)
        self.assertEqual([(d["layers"], d["changes"]) for d in report["diagnoses"]], [([0], ["rope_theta"])])
        self.assertIn("rope_theta 1000000 in place of 30000", report["diagnoses"][0]["says"])

    def test_a_dropped_scaling(self):
        wrong = self.every(Rope())
        self.assert_diagnosed(self.check(self.config(rope_scaling=LLAMA3), wrong, wrong), "scaling", says="rope_scaling is left out")

    def test_a_dropped_scaling_within_one_engines_move(self):
        # LMCache's in-process blend: a right cache, moved without the scaling.
        plain, keys = Rope(), [rotated(p, Rope(scaling="llama3"), 0) for p in self.prompts]
        at_0 = self.save("a", self.every(Rope(scaling="llama3")), 0)
        for layer in range(LAYERS):
            moved = [[plain(head, DISTANCE) for head in token] for token in keys[layer]]
            self.write(f"b.{layer}.npy", npy(CODES["f32"](nhd(moved)), "<f4", (TOKENS, HEADS, HEAD_DIM)))
        result = self.run_phasor("--config", self.config(rope_scaling=LLAMA3), "--layout", "nhd", "--input", at_0, "--to-input",
                                 self.folder / "b.{layer}.npy", "--to", DISTANCE)
        self.assert_diagnosed(result, "scaling")

    def test_the_other_pairing(self):
        wrong = self.every(Rope(half=False))
        self.assert_diagnosed(self.check(self.config(), wrong, wrong), "pairing", says="interleaved pairs")

    def test_another_window(self):
        for begin, dim in ((0, HEAD_DIM // 2), (HEAD_DIM // 2, HEAD_DIM // 2), (0, HEAD_DIM // 4)):
            with self.subTest((begin, dim)):
                wrong = self.every(Rope(dim=dim, begin=begin))
                self.assert_diagnosed(self.check(self.config(), wrong, wrong), "window", says=f"lanes [{begin}, {begin + dim}) in place of [0, 64)")

    def test_a_full_window_for_a_partial_model(self):
        config = self.write("phi.json", LLAMA | {"model_type": "phi", "partial_rotary_factor": 0.5})
        self.assert_fits(self.check(config, self.every(Rope(dim=32)), self.every(Rope(dim=32))))
        self.assert_diagnosed(self.check(config, self.every(Rope()), self.every(Rope())), "window", says="lanes [0, 64) in place of [0, 32)")
        other_end = self.every(Rope(dim=32, begin=32))
        self.assert_diagnosed(self.check(config, other_end, other_end), "window", says="lanes [32, 64) in place of [0, 32)")

    def test_an_amplitude_per_shift(self):
        # llama.cpp's K-shift under YaRN: the destination was multiplied once more, or twice.
        config = self.config(rope_scaling=YARN)
        for times in (1, 2):
            with self.subTest(times):
                shifted = Rope(scaling="yarn", amplitude=YARN_AMPLITUDE ** (1 + times))
                result = self.check(config, self.every(Rope(scaling="yarn", amplitude=YARN_AMPLITUDE)), self.every(shifted))
                self.assert_diagnosed(result, "amplitude", says="once more" if times == 1 else "2 times")

    def test_a_lost_amplitude(self):
        right = self.every(Rope(scaling="yarn", amplitude=YARN_AMPLITUDE))
        result = self.check(self.config(rope_scaling=YARN), right, self.every(Rope(scaling="yarn")))
        self.assert_diagnosed(result, "amplitude", says="lost the amplitude")

    def test_positions_that_are_off_by_one_or_backwards(self):
        right = self.every(Rope())
        for moved_by, says in ((DISTANCE + 1, "a distance of 1001 positions"), (DISTANCE - 1, "a distance of 999 positions")):
            with self.subTest(moved_by):
                self.assert_diagnosed(self.check(self.config(), right, right, moved_by=moved_by), "distance", says=says)
        result = self.check(self.config(), right, right, moved_by=-DISTANCE)
        self.assert_diagnosed(result, "distance", says="the sign is wrong")

    def test_keys_that_were_never_rotated(self):
        still = Rope()
        still.frequencies = [0.0] * (HEAD_DIM // 2)
        self.assert_diagnosed(self.check(self.config(), self.every(still), self.every(still)), "rotation", says="equal at both offsets")

    def pool(self, said):
        """One page of 48 slots for each layer, heads outermost: the prompt at 0 in its first half, at 1000 in its second."""
        for layer in range(LAYERS):
            keys = rotated(self.prompts[layer], Rope(), 0) + rotated(self.prompts[layer], Rope(), DISTANCE)
            self.write(f"pool.{layer}.npy", npy(CODES["f32"](hnd(keys)), "<f4", (1, *said, HEAD_DIM)))
        return ("--config", self.config(), "--input", self.folder / "pool.{layer}.npy", "--to", DISTANCE, "--to-first", TOKENS, "--count", TOKENS)

    def test_exchanged_heads_and_slots(self):
        self.assert_fits(self.run_phasor(*self.pool((HEADS, 2 * TOKENS)), "--layout", "hnd"))
        result = self.run_phasor(*self.pool((2 * TOKENS, HEADS)), "--layout", "nhd")
        self.assert_diagnosed(result, "layout", says="layout hnd: heads and slots are exchanged")

    def test_equal_slots_cannot_tell_heads_from_slots_and_that_is_said(self):
        a, b = (self.save(name, self.every(Rope()), offset) for name, offset in (("a", 0), ("b", DISTANCE)))
        status, report, _ = self.run_phasor("--config", self.config(), "--layout", "nhd", "--input", a, "--to-input", b, "--to", DISTANCE)
        self.assertEqual(status, 0)
        self.assertIn("heads and slots are exchanged", "\n".join(report["also_fit"]))

    def test_keys_and_values_exchanged(self):
        values = prompt(99)
        for kind in ("half", "tensor"):
            for name, offset in (("a", 0), ("b", DISTANCE)):
                tensors = {}
                for layer in range(LAYERS):
                    keys, v = (CODES["f32"](nhd(rows)) for rows in (rotated(self.prompts[layer], Rope(), offset), values))
                    if kind == "half":
                        tensors[f"kv.{layer}"] = ("F32", [2, 1, TOKENS, HEADS, HEAD_DIM], v + keys)
                    else:
                        tensors[f"key_cache.{layer}"] = ("F32", [TOKENS, HEADS, HEAD_DIM], v)
                        tensors[f"value_cache.{layer}"] = ("F32", [TOKENS, HEADS, HEAD_DIM], keys)
                self.write(f"{name}.safetensors", safetensors(tensors))
            more = ("--layout", "vllm-flash", "--tensor", "kv.{layer}") if kind == "half" else ("--layout", "nhd")
            with self.subTest(kind):
                result = self.run_phasor("--config", self.config(), "--input", self.folder / "a.safetensors", "--to-input",
                                         self.folder / "b.safetensors", "--to", DISTANCE, *more)
                self.assert_diagnosed(result, "values", says="keys and values are exchanged")

    def test_slots_that_are_off_by_one(self):
        at_0 = self.save("a", self.every(Rope()), 0)
        first, self.prompts = self.prompts, [[prompt(7)[0]] + p[:-1] for p in self.prompts]
        moved = self.save("b", self.every(Rope()), DISTANCE - 1)  # one token in front, at 999
        self.prompts = first
        result = self.run_phasor("--config", self.config(), "--layout", "nhd", "--input", at_0, "--to-input", moved, "--to", DISTANCE)
        self.assert_diagnosed(result, "rows", says="the slots are off by one")

    def test_two_faults_at_once(self):
        wrong = self.every(Rope(10000.0, half=False))
        self.assert_diagnosed(self.check(self.config(), wrong, wrong), "rope_theta", "pairing", says="; and with ")

    def test_rows_that_were_not_written_are_no_matter_of_the_specification(self):
        at_0, moved = self.save("a", self.every(Rope()), 0), self.save("b", self.every(Rope()), DISTANCE)
        raw = bytearray((self.folder / "b.1.npy").read_bytes())
        begin = len(raw) - TOKENS * HEADS * HEAD_DIM * 4 + 5 * HEADS * HEAD_DIM * 4
        raw[begin : begin + HEAD_DIM * 4] = bytes(HEAD_DIM * 4)  # token 5, head 0
        self.write("b.1.npy", bytes(raw))
        status, report, error = self.run_phasor("--config", self.config(), "--layout", "nhd", "--input", at_0, "--to-input", moved, "--to", DISTANCE)
        self.assertEqual(status, 1)
        self.assertEqual([(d["layers"], d["changes"]) for d in report["diagnoses"]], [([1], [])])
        self.assertIn(f"fits {TOKENS * HEADS - 1} of {TOKENS * HEADS} rows", error)
        self.assertEqual((report["layers"][1]["first_bad_token"], report["layers"][1]["first_bad_head"]), (5, 0))

    def test_random_keys_fit_nothing(self):
        self.save("a", self.every(Rope()), 0)
        self.prompts = [prompt(50 + layer) for layer in range(LAYERS)]
        self.save("b", self.every(Rope()), DISTANCE)
        result = self.run_phasor("--config", self.config(), "--layout", "nhd", "--input", self.folder / "a.{layer}.npy", "--to-input",
                                 self.folder / "b.{layer}.npy", "--to", DISTANCE)
        self.assertEqual(result[0], 1)
        self.assertFalse(result[1]["diagnoses"][0]["fits"])
        self.assertIn("no neighbour of the specification fits", result[2])

    def test_caches_of_zeros_are_refused(self):
        zeros = npy(bytes(TOKENS * HEADS * HEAD_DIM * 4), "<f4", (TOKENS, HEADS, HEAD_DIM))
        for name in ("a.0.npy", "a.1.npy"):
            self.write(name, zeros)
        result = self.run_phasor("--config", self.config(), "--layout", "nhd", "--input", self.folder / "a.{layer}.npy", "--to", DISTANCE)
        self.assertEqual(result[0], 1)
        self.assertIn("all keys are zero", result[2])

    def test_offsets_that_are_too_near_are_said(self):
        # Within 8 positions the slow pairs of Llama 3.1 do not move enough to see their scaling.
        rope = self.every(Rope(scaling="llama3"))
        status, report, _ = self.check(self.config(rope_scaling=LLAMA3), rope, rope, moved_by=8, said=8, code="bf16")
        self.assertEqual(status, 0)
        self.assertIn("rope_scaling is left out", "\n".join(report["also_fit"]))

    def test_a_coarse_code_does_not_hide_a_wrong_base(self):
        # The tolerance of q4_0 is wide; another base that fits much better shows the fault.
        wrong = self.every(Rope(1e6))
        sizes = ("--pages", 1, "--page-size", TOKENS, "--heads", HEADS, "--code", "q4-0")
        result = self.check(self.config(), wrong, wrong, *sizes, "--tolerance", 2, code="q4_0")
        self.assert_diagnosed(result, "rope_theta", says="rope_theta 1000000")


class LlamaStates(Case):
    def rows(self, layer, rope, offset):
        return [flat(token) for token in rotated(self.prompts[layer], rope, offset)]

    def cache(self, rope, offset, code="f16", **more):
        cells = [(offset + t, [0]) for t in range(TOKENS)]
        return llama_cache(cells, [self.rows(layer, rope, offset) for layer in range(LAYERS)], code, **more)

    def run_states(self, a, b, *more, config=None):
        return self.run_phasor("--config", config or self.config(), "--input", self.write("a.state", a), "--to-input", self.write("b.state", b), *more)

    def test_every_kind_of_file_fits(self):
        kinds = (llama_sequence_file, llama_sequence_data, llama_session_file)
        for kind in kinds:
            for more in ({}, {"transposed": True}, {"values": False}, {"extra": bytes(12)}, {"extra": bytes(8)}):
                with self.subTest((kind.__name__, more)):
                    self.assert_fits(self.run_states(kind(self.cache(Rope(), 0, **more)), kind(self.cache(Rope(), DISTANCE, **more))))

    def test_every_code_fits(self):
        for code in CODES:
            # llama.cpp multiplies quantised keys by a Hadamard matrix of 64 lanes for heads of 64.
            more = {"transform": HEAD_DIM} if code.startswith("q") else {}
            with self.subTest(code):
                a, b = (llama_sequence_file(self.cache(Rope(), offset, code, **more)) for offset in (0, DISTANCE))
                self.assert_fits(self.run_states(a, b))

    def test_a_missing_hadamard_transform(self):
        a, b = (llama_sequence_file(self.cache(Rope(), offset, "q8_0")) for offset in (0, DISTANCE))
        self.assert_diagnosed(self.run_states(a, b), "hadamard", says="no Hadamard transform")
        self.assert_fits(self.run_states(a, b, "--hadamard", 0))

    def test_newer_files_say_their_transform(self):
        for transform in (0, HEAD_DIM):
            with self.subTest(transform):
                a, b = (llama_sequence_file(self.cache(Rope(), offset, "q8_0", transform=transform, newer=True), version=4) for offset in (0, DISTANCE))
                self.assert_fits(self.run_states(a, b))

    def test_the_pairs_of_llama(self):
        a, b = (llama_sequence_file(self.cache(Rope(half=False), offset)) for offset in (0, DISTANCE))
        self.assert_diagnosed(self.run_states(a, b), "pairing", says="as llama.cpp stores them for Llama")
        self.assert_fits(self.run_states(a, b, "--pairing", "interleaved"))

    def test_a_context_shift_under_yarn(self):
        a = llama_sequence_file(self.cache(Rope(scaling="yarn", amplitude=YARN_AMPLITUDE), 0))
        b = llama_sequence_file(self.cache(Rope(scaling="yarn", amplitude=YARN_AMPLITUDE**2), DISTANCE))
        self.assert_diagnosed(self.run_states(a, b, config=self.config(rope_scaling=YARN)), "amplitude", says="a shift must rotate only")

    def test_two_sequences_of_one_session_in_any_order_of_cells(self):
        cells = [(t, [0]) for t in range(TOKENS)] + [(DISTANCE + t, [3]) for t in range(TOKENS)]
        order = list(range(2 * TOKENS))
        random.Random(5).shuffle(order)
        layers = []
        for layer in range(LAYERS):
            rows = self.rows(layer, Rope(), 0) + self.rows(layer, Rope(), DISTANCE)
            layers.append([rows[i] for i in order])
        state = llama_session_file(llama_cache([cells[i] for i in order], layers, "f16"))
        path = self.write("both.state", state)
        status, _, error = self.run_phasor("--config", self.config(), "--input", path)
        self.assertEqual(status, 1)
        self.assertIn("holds sequences 0, 3; must be chosen", error)
        self.assert_fits(self.run_phasor("--config", self.config(), "--input", path, "--sequence", 0, "--to-sequence", 3))

    def test_two_ranges_of_one_sequence(self):
        cells = [(t, [0]) for t in range(TOKENS)] + [(DISTANCE + t, [0]) for t in range(TOKENS)]
        layers = [self.rows(layer, Rope(), 0) + self.rows(layer, Rope(), DISTANCE) for layer in range(LAYERS)]
        path = self.write("one.state", llama_sequence_file(llama_cache(cells, layers, "f16")))
        result = self.run_phasor("--config", self.config(), "--input", path, "--from", 0, "--to", DISTANCE, "--count", TOKENS)
        self.assert_fits(result)
        self.assertEqual(result[1]["layers"][0]["tokens"], TOKENS)

    def test_models_with_a_sliding_window_have_two_caches(self):
        config = self.write("gemma.json", {
            "model_type": "gemma3_text", "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": HEADS, "head_dim": HEAD_DIM,
            "num_hidden_layers": LAYERS, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
            "layer_types": ["sliding_attention", "full_attention"], "max_position_embeddings": 32768})

        def state(offset):
            full = llama_cache([(offset + t, [0]) for t in range(TOKENS)], [self.rows(1, Rope(1e6), offset)], "f16")
            kept = range(8, TOKENS)  # of the window
            rows = self.rows(0, Rope(10000.0), offset)
            return llama_sequence_file(full + llama_cache([(offset + t, [0]) for t in kept], [[rows[t] for t in kept]], "f16"))

        result = self.run_states(state(0), state(DISTANCE), config=config)
        self.assert_fits(result)
        self.assertEqual([layer["tokens"] for layer in result[1]["layers"]], [TOKENS - 8, TOKENS])

    def test_truncated_and_foreign_files_are_refused_by_name(self):
        whole = llama_sequence_file(self.cache(Rope(), 0))
        good = self.write("good.state", llama_sequence_file(self.cache(Rope(), DISTANCE)))
        for name, data, says in (
            ("short", whole[:200], "ends in its cells"),
            ("keys", whole[: len(whole) // 3], "ends in the keys of layer"),
            ("version", whole[:4] + struct.pack("<I", 2) + whole[8:], "state of version 2; must be 3 or 4"),
            ("iq4_nl", llama_sequence_file(self.cache(Rope(), 0)).replace(struct.pack("<iQ", 1, 256), struct.pack("<iQ", 20, 256), 1), "have ggml type 20"),
        ):
            with self.subTest(name):
                status, _, error = self.run_phasor("--config", self.config(), "--input", self.write("bad.state", data), "--to-input", good)
                self.assertEqual(status, 1)
                self.assertIn(says, error)


class Mistakes(Case):
    def test_errors_say_what_to_do(self):
        config, a = self.config(), self.save("a", self.every(Rope()), 0)
        base = ("--config", config, "--input", a, "--layout", "nhd")
        for arguments, says in (
            ((*base, "--to", 0), "--to: 0, as --from; must differ"),
            ((*base, "--to", 9, "--count", 99), "--count: 99 tokens"),
            (("--config", config, "--input", self.folder / "none.npy", "--to", 9), "cannot be opened"),
            (("--config", config, "--input", a, "--layout", "hnd", "--to", 9, "--heads", 3), "must agree"),
            ((*base, "--to", 9, "--to-input", self.folder / "a.0.npy", "--layers", 1), ""),
        ):
            with self.subTest(says):
                status, _, error = self.run_phasor(*arguments)
                self.assertEqual(status, 1)
                self.assertIn(says, error)

    def test_it_computes_in_this_process(self):
        status, _, error = self.run_phasor("--input", "a", "--server", "localhost:1")
        self.assertEqual(status, 2)
        self.assertIn("--server: no such flag of `phasor check-cache`", error)


if __name__ == "__main__":
    unittest.main()
