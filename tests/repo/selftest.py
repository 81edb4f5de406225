# SPDX-License-Identifier: Apache-2.0
"""Checks that each rule finds a planted violation and accepts the correct form of the same code."""

import json
import pathlib
import tempfile
import unittest

import containers
import docs
import figures
import headers
import layering
import models_page
import presets
import results
import rules

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class LayeringTest(unittest.TestCase):
    def refuses(self, path, include):
        found = layering.violations({path: SPDX + f"#include {include}\n"})
        self.assertEqual(len(found), 1, f"{path} may include {include}: {found}")
        self.assertIn(f"{path}:2:", found[0])

    def accepts(self, path, include):
        self.assertEqual(layering.violations({path: f"#include {include}\n"}), [])

    def test_nobody_includes_the_layer_above(self):
        self.refuses("kernels/plan/plan.cc", '"server/engine/engine.h"')
        self.refuses("kernels/cpu/encode.cc", '"kernels/cuda/encode.cuh"')
        self.refuses("kernels/reference/encode.cc", '"kernels/cpu/encode.h"')
        self.refuses("kernels/plan/plan.cc", '"kernels/cpu/cpu_backend.h"')
        self.refuses("server/engine/engine.cc", '"server/api/request_view.h"')
        self.refuses("server/api/service.cc", '"client/client.h"')
        self.refuses("server/oip/service.cc", '"server/api/tensor_call.h"')
        self.refuses("server/memory/region.cc", '"server/grpc/access.h"')
        self.refuses("kernels/ops/rotary.h", '"kernels/plan/plan.h"')
        self.refuses("client/client.cc", '"server/server.h"')
        self.refuses("server/server.cc", '"tests/support/fake_clock.h"')

    def test_everybody_includes_the_layers_below(self):
        self.accepts("kernels/backends.cc", '"kernels/cpu/cpu_backend.h"')
        self.accepts("kernels/cpu/encode.cc", '"kernels/plan/plan.h"')
        self.accepts("server/engine/engine.cc", '"kernels/backend/backend.h"')
        self.accepts("server/api/service.cc", '"server/engine/engine.h"')
        self.accepts("client/grpc/connection.cc", '"phasor/v1/tensor.pb.h"')
        self.accepts("tests/server/engine/engine_test.cc", '"server/engine/engine.h"')

    def test_the_table_has_no_cycle(self):
        self.assertEqual(list(layering.cycles()), [])
        layering.MAY_INCLUDE["kernels/base"].append("server")
        self.assertEqual(len(list(layering.cycles())), 1)
        layering.MAY_INCLUDE["kernels/base"].pop()

    def test_external_libraries_stay_where_they_belong(self):
        self.refuses("server/engine/engine.cc", "<grpcpp/grpcpp.h>")
        self.refuses("kernels/request/request.cc", '"phasor/v1/tensor.pb.h"')
        self.refuses("kernels/plan/plan.cc", "<google/protobuf/message.h>")
        self.refuses("kernels/reference/encode.cc", '"hwy/highway.h"')
        self.refuses("kernels/plan/plan.h", "<cuda_runtime.h>")
        self.refuses("kernels/spec/spec.cc", "<boost/multiprecision/cpp_int.hpp>")
        self.refuses("kernels/spec/spec.cc", "<nlohmann/json.hpp>")
        self.refuses("kernels/spec/spec.cc", "<gtest/gtest.h>")
        self.accepts("server/api/service.cc", "<grpcpp/grpcpp.h>")
        self.accepts("kernels/base/json.h", "<nlohmann/json.hpp>")
        self.accepts("kernels/cpu/encode.cc", '"hwy/highway.h"')
        self.accepts("kernels/plan/frequencies.cc", "<boost/multiprecision/cpp_bin_float.hpp>")

    def test_public_client_headers_show_no_generated_code(self):
        self.refuses("client/client.h", '"client/grpc/grpc_connection.h"')
        self.accepts("client/connect/connect.cc", '"client/grpc/grpc_connection.h"')

    def test_includes_start_at_the_root(self):
        self.refuses("kernels/plan/plan.cc", '"plan.h"')
        self.refuses("kernels/plan/plan.cc", '"kernels/spec/spec.cc"')


class RulesTest(unittest.TestCase):
    def test_long_file_needs_a_reason_and_a_reason_needs_a_long_file(self):
        long, short = {"kernels/a.cc": "\n" * 501}, {"kernels/a.cc": "\n" * 500}
        self.assertEqual(len(rules.long_files(long, {})), 1)
        self.assertEqual(rules.long_files(long, {"kernels/a.cc": "tables"}), [])
        self.assertEqual(rules.long_files(short, {}), [])
        self.assertEqual(len(rules.long_files(short, {"kernels/a.cc": "tables"})), 1)
        self.assertEqual(len(rules.long_files({}, {"kernels/a.cc": "tables"})), 1)

    def test_every_code_file_states_its_licence(self):
        self.assertEqual(len(rules.missing_spdx({"kernels/a.cc": "int a;\n"})), 1)
        self.assertEqual(len(rules.missing_spdx({"dev": "#!/bin/sh\n"})), 1)
        self.assertEqual(rules.missing_spdx({"kernels/a.cc": SPDX, "README.md": ""}), [])

    def test_fast_math_is_found_and_its_negation_is_not(self):
        self.assertEqual(len(rules.forbidden_flags({"CMakeLists.txt": "add_compile_options(-ffast-math)"})), 1)
        self.assertEqual(len(rules.forbidden_flags({"cmake/A.cmake": "x -march=native"})), 1)
        self.assertEqual(rules.forbidden_flags({"CMakeLists.txt": "-fno-fast-math -ffp-contract=off"}), [])
        self.assertEqual(rules.forbidden_flags({"bench/cuda/peers/build.sh": "-use_fast_math"}), [])
        self.assertEqual(len(rules.forbidden_flags({"bench/cuda/build.sh": "-use_fast_math"})), 1)

    def test_include_guard_is_the_path(self):
        self.assertEqual(len(rules.include_guards({"a/b.h": "#pragma once\n"})), 1)
        self.assertEqual(rules.include_guards({"a/b.h": "#ifndef PHASOR_A_B_H_\n#define PHASOR_A_B_H_\n"}), [])

    def test_every_source_has_a_test(self):
        self.assertEqual(len(rules.untested_sources({"kernels/a.cc": ""}, {})), 1)
        self.assertEqual(rules.untested_sources({"kernels/a.cc": ""}, {"kernels/a.cc": "why"}), [])
        tested = {"kernels/a.cc": "", "tests/kernels/a_test.cc": ""}
        self.assertEqual(rules.untested_sources(tested, {}), [])
        self.assertEqual(len(rules.untested_sources(tested, {"kernels/a.cc": "why"})), 1)
        op = {"kernels/cpu/op.cc": "", "kernels/reference/op.cc": "", "tests/kernels/op_test.cc": ""}
        self.assertEqual(rules.untested_sources(op, {}), [])

    def test_a_grpc_server_is_made_in_one_place(self):
        made = "  grpc::ServerBuilder builder;\n"
        self.assertEqual(rules.bare_grpc_servers({"server/grpc/grpc_server.cc": made, "tests/a.cc": made}), [])
        self.assertEqual(len(rules.bare_grpc_servers({"server/admin_server.cc": made})), 1)

    def test_a_test_name_claims_something(self):
        bad = "TEST(PlanTest, Basic) {}\nTEST_F(PlanTest, Works2) {}\n"
        self.assertEqual(len(rules.empty_test_names({"tests/plan_test.cc": bad})), 2)
        self.assertEqual(rules.empty_test_names({"tests/plan_test.cc": "TEST(PlanTest, RejectsOddDim) {}"}), [])

    def test_a_test_that_sleeps_needs_a_reason_and_a_reason_needs_a_sleep(self):
        for sleep in ("absl::SleepFor(x);", "std::this_thread::sleep_for(x);", "usleep(1);", "nanosleep(&t, 0);", "sleep(1);"):
            self.assertEqual(len(rules.fixed_sleeps({"tests/a_test.cc": f"int a;\n  {sleep}\n"}, {})), 1, sleep)
        self.assertEqual(rules.fixed_sleeps({"tests/a.py": "import time\ntime.sleep(1)\n"}, {})[0].split()[0], "tests/a.py:2:")
        self.assertEqual(len(rules.fixed_sleeps({"tests/a.sh": "a\nsleep 0.1\nb & sleep $time\n"}, {})), 2)
        self.assertEqual(rules.fixed_sleeps({"tests/a_test.cc": "sleeps();  // it sleeps 8 hours, Sleep()\n"}, {}), [])
        self.assertEqual(rules.fixed_sleeps({"server/a.cc": "usleep(1);"}, {}), [])
        self.assertEqual(rules.fixed_sleeps({"tests/a.cc": "usleep(1);"}, {"tests/a.cc": "keeps a rate"}), [])
        self.assertEqual(len(rules.fixed_sleeps({"tests/a.cc": ""}, {"tests/a.cc": "keeps a rate"})), 1)
        self.assertEqual(len(rules.fixed_sleeps({}, {"tests/a.cc": "keeps a rate"})), 1)

    def test_a_workflow_pins_its_actions_and_may_only_read(self):
        path, sha = ".github/workflows/a.yaml", "0123456789" * 4
        head = "permissions:\n  contents: read\njobs:\n"
        self.assertEqual(rules.loose_workflows({path: f"{head}      - uses: a/b@{sha}  # v1\n"}), [])
        self.assertEqual(len(rules.loose_workflows({path: f"{head}      - uses: a/b@v1\n"})), 1)
        self.assertEqual(len(rules.loose_workflows({path: f"{head}      - name: c\n        uses: a/b@main\n"})), 1)
        self.assertEqual(len(rules.loose_workflows({path: "jobs:\n"})), 1)
        self.assertEqual(len(rules.loose_workflows({path: "permissions:\n  contents: read\n  packages: write\njobs:\n"})), 1)


class DocsTest(unittest.TestCase):
    def test_a_container_of_the_server_has_a_row_with_a_test(self):
        row = "| `net/a: seen_` | callers | ten | `ATest.Holds` |\n"
        tree = {
            "server/net/a.h": "class A {\n  std::map<int, std::string> seen_ ABSL_GUARDED_BY(mu_);\n  int n_ = 0;\n};\n",
            "tests/a.cc": "TEST_F(ATest, Holds) {\n",
            containers.PAGE: row,
        }
        self.assertEqual(containers.violations(tree), [])
        self.assertIn("is in no row", containers.violations(tree | {containers.PAGE: ""})[0])
        self.assertIn("no test ATest.Holds", containers.violations(tree | {"tests/a.cc": ""})[0])
        self.assertIn("no such member", containers.violations(tree | {"server/net/a.h": ""})[0])
        for member in ("std::deque<Entry> seen_;", "absl::flat_hash_map<int, int> seen_;  // by number", "std::vector<int> seen_ ABSL_GUARDED_BY(mu_);", "std::vector<int> seen_\n      ABSL_GUARDED_BY(mu_);", "std::set<int> seen_ ABSL_GUARDED_BY(*mu_);"):
            self.assertEqual(containers.violations(tree | {"server/net/a.h": f"class A {{\n  {member}\n}};\n"}), [], member)

    def test_documents_name_files_that_exist(self):
        tree = {"docs/a.md": "[x](../kernels/gone.h) `kernels/gone.cc` `kernels/{plan,gone}.h`", "kernels/plan.h": ""}
        self.assertEqual(len(docs.violations(tree)), 3)
        tree["docs/a.md"] = "[x](../kernels/plan.h#top) `kernels/` `kernels/{plan}.h` [y](https://example.org) `a/b`"
        self.assertEqual(docs.violations(tree), [])

    def test_the_index_lists_every_decision_by_its_title(self):
        tree = {"docs/adr/0007-a.md": "# 7. A b\n\nStatus: accepted\n", docs.INDEX: "- [7. A b](0007-a.md)\n"}
        self.assertEqual(docs.violations(tree), [])
        self.assertIn("[7. A c]", docs.violations(tree | {"docs/adr/0007-a.md": "# 7. A c\n"})[0])


class PresetsTest(unittest.TestCase):
    def test_the_list_of_presets_is_the_data(self):
        preset = '{"name": "x-1", "summary": "a | b", "required": ["dim"], "context_length": null, "verified": false}'
        models = '{"transformers": "5", "parts": {}, "models": [{"model_type": "llama", "pairing": "HALF_SPLIT", "theta": 10000.0, "observed": "by hand"}]}'
        tree = {presets.DATA: f"[{preset}]", presets.DOCUMENT: "", models_page.DATA: models, models_page.DOCUMENT: ""}
        walk = '{"timm": {"version": "1", "rows": {"a.Rope": ["compared", "timm-a"], "a.Crop": ["stays out", "no table"]}}}'
        sources = '[{"preset": "x-1", "published": [], "why": "a text"}]'
        tree |= {models_page.WALK: walk, presets.SOURCES: sources}
        self.assertEqual(len(presets.violations(tree)), 3)
        row = "| `x-1` | a \\| b | `dim` |  | **no** |\n"
        tree[presets.DOCUMENT] = row + presets.copies(tree)
        tree[models_page.DOCUMENT] = models_page.BEGIN + models_page.page(tree) + models_page.END
        self.assertEqual(presets.violations(tree), [])
        tree[presets.DOCUMENT] = row.replace("**no**", "yes") + row + "| `gone` | | | | yes |\n" + presets.copies(tree)
        self.assertEqual(len(presets.violations(tree)), 3)


class FiguresTest(unittest.TestCase):
    def test_sentences_have_the_counts_of_the_data(self):
        tree = {f"{figures.CONFIGS}{name}.json": "[]" for name in ("golden", "published", "layers")}
        tree |= {figures.PRESETS: '[{"verified": true}, {"verified": false}]'}
        pages = {}
        for document, sentence in figures.sentences(tree):
            pages[document] = pages.get(document, "") + sentence.replace(" ", "\n") + "\n"
        self.assertEqual(figures.violations(tree | pages), [])
        self.assertEqual(len(figures.violations(tree | pages | {figures.PRESETS: "[]"})), 2)


class ResultsTest(unittest.TestCase):
    def test_a_table_is_its_rows(self):
        row = {"name": "encode", "shape": "T=1", "cache": "warm", "dtype": "FLOAT32", "threads": 1, "value": 2.0, "unit": "us"}
        row |= {"baseline": "memset", "baseline_value": 1.0, "ratio": 0.5}
        rows = [row | {"target": 0.9, "met": False}, row | {"target": None, "met": None}]
        empty = "<!-- results a-day: kernels -->\n<!-- results: end -->"
        tree = {"bench/results/a-day/kernels.json": json.dumps(rows), "docs/a.md": empty}
        self.assertEqual(len(results.violations(tree)), 1)
        tree["docs/a.md"] = results.with_tables(tree, empty)
        self.assertEqual(tree["docs/a.md"].count("| encode |"), 1)
        self.assertEqual(results.with_tables(tree, empty.replace("kernels", "kernels all")).count("| encode |"), 2)
        self.assertEqual(results.violations(tree), [])
        tree["docs/a.md"] = tree["docs/a.md"].replace("**MISS**", "met")
        self.assertEqual(len(results.violations(tree)), 1)
        floored = row | {"target": 0.9, "met": True, "most": 0.55}
        self.assertIn("| 0.50 met | 0.9; floor 0.55 |", results.line(floored))
        self.assertNotIn("floor", results.line(floored | {"ratio": 0.95}))

    def test_a_summary_has_a_line_for_each_target(self):
        row = {"name": "rope", "baseline": "echo", "target": 0.9}
        rows = [row | {"ratio": 1.25, "met": True}, row | {"ratio": 0.8, "met": False}, row | {"target": None, "ratio": 0.1, "met": None}]
        single = [row | {"name": "peer", "baseline": "peer:ggml (best)", "ratio": 0.8, "met": False}]
        empty = "<!-- summary a-day b-day: calls peers -->\n<!-- summary: end -->"
        tree = {"bench/results/a-day/calls.json": json.dumps(rows), "bench/results/b-day/peers.json": json.dumps(single), "docs/a.md": empty}
        self.assertEqual(len(results.violations(tree)), 1)
        tree["docs/a.md"] = results.with_tables(tree, empty)
        self.assertIn("| rope | echo | 0.9 | 1 of 2: 0.80 to 1.25 |  |", tree["docs/a.md"])
        self.assertIn("| peer | best peer | 0.9 |  | 0.80 **MISS** |", tree["docs/a.md"])
        floored = row | {"ratio": 0.85, "met": True, "most": 0.9}
        self.assertEqual(results.reached_and_range([floored, *rows[:2]]), "1 of 3, 1 at its floor: 0.80 to 1.25")
        self.assertEqual(results.reached_and_range([floored] * 2), "0 of 2, 2 at their floor: 0.85 to 0.85")
        self.assertEqual(results.reached_and_range([floored]), "0.85 at its floor")
        self.assertEqual(results.violations(tree), [])
        tree["docs/a.md"] = tree["docs/a.md"].replace("1 of 2", "2 of 2")
        self.assertEqual(len(results.violations(tree)), 1)
        with self.assertRaisesRegex(KeyError, "nothing of c-day"):
            results.with_tables(tree, empty.replace("b-day", "b-day c-day"))
        with self.assertRaisesRegex(KeyError, "nothing of cores"):
            results.with_tables(tree, empty.replace("peers", "peers cores"))


class HeadersTest(unittest.TestCase):
    def test_header_without_its_includes_does_not_compile_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "good.h").write_text("#pragma once\n#include <string>\nstd::string f();\n", encoding="utf-8")
            pathlib.Path(folder, "bad.h").write_text("#pragma once\nstd::string f();\n", encoding="utf-8")
            found = headers.check(["c++"], folder, ["good.h", "bad.h"])
        self.assertEqual(len(found), 1)
        self.assertIn("bad.h", found[0])


if __name__ == "__main__":
    unittest.main()
