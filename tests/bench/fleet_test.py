# SPDX-License-Identifier: Apache-2.0
"""fleet_test.py BUILD: bench/fleet/fleet.py: its arithmetic, and that a run of two servers, of which
one is killed, accounts for every call. Compares no times."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/fleet"))
import fleet  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
COSTS = {tokens: 1e-4 + tokens * 1e-6 for tokens, _ in fleet.CLASSES}


def report(tokens, calls, errors=()):
    """What `phasor bench` says."""
    times = dict.fromkeys(("p50_ms", "p99_ms", "p999_ms", "max_ms"), 1.0)
    return {"bytes_per_call": tokens * 1000, "rate": 100.0,
            "phasor": times | {"calls": calls, "seconds": 2.0, "unsent": 3, "errors": list(errors)}}


class ArithmeticTest(unittest.TestCase):
    def test_rates_cost_what_they_should_and_have_a_heavy_tail(self):
        wanted = fleet.rates(COSTS, 0.5)
        self.assertAlmostEqual(sum(rate * COSTS[tokens] for tokens, rate in wanted.items()), 0.5)
        by_size = [wanted[tokens] for tokens, _ in fleet.CLASSES]
        self.assertEqual(by_size, sorted(by_size, reverse=True))
        # Rare calls carry most of the bytes.
        bytes_ = [rate * tokens for tokens, rate in wanted.items()]
        self.assertGreater(bytes_[-1] + bytes_[-2], sum(bytes_) / 2)

    def test_counters_of_a_replica_are_those_of_its_calls(self):
        page = "\n".join(
            f'grpc_server_call_duration_seconds_count{{grpc_method="{method}",grpc_status="{status}"}} {count}'
            for method, status, count in (
                ("phasor.v1.PositionEmbeddingService/ApplyRoPE", "OK", 7),
                ("phasor.v1.PositionEmbeddingService/ApplyRoPE", "UNAVAILABLE", 2),
                ("phasor.v1.PositionEmbeddingService/ApplyRoPE", "CANCELLED", 1),
                ("grpc.health.v1.Health/Check", "OK", 100),
            )
        )
        self.assertEqual(fleet.counters(page), {"calls": 7, "unavailable": 2})

    def test_row_adds_up(self):
        reports = {1: report(1, 100), 16: report(16, 50, [{"code": "UNAVAILABLE", "count": 4}])}
        used = [{"calls": 120, "unavailable": 1, "cpu": 0.3}, {"calls": 40, "unavailable": 0, "cpu": 0.2}]
        row = fleet.row("client", "steady", 2, reports, used, None, (5e-3, 1e-3, 1e-7))
        self.assertEqual((row["goodput_calls_per_second"], row["failed"], row["unsent"]), (75, {"UNAVAILABLE": 4}, 6))
        self.assertEqual((row["imbalance"], row["refused"], row["offered_calls_per_second"]), (1.5, 1, 200))
        self.assertAlmostEqual(row["predicted_cpu_seconds"], 2 * 2 * 5e-3 + 150e-3 + (100 * 1000 + 50 * 16000) * 1e-7)
        self.assertAlmostEqual(row["measured_of_predicted"], 0.5 / row["predicted_cpu_seconds"])


class RunTest(unittest.TestCase):
    def test_every_call_is_accounted_for_while_a_replica_is_killed(self):
        wanted = {1: 40.0, 16: 10.0}
        row = fleet.run(BUILD, "client", "kill", 2, wanted, 4)
        done = row["goodput_calls_per_second"] * row["seconds"]
        accounted = done + sum(row["failed"].values()) + row["unsent"]
        self.assertAlmostEqual(accounted, sum(wanted.values()) * 4, delta=1)
        self.assertEqual(row["failed"], {})  # a client repeats what broke
        self.assertGreater(row["cpu_seconds"], 0)
        self.assertGreaterEqual(row["imbalance"], 1)


    def test_the_model_is_measured_beside_the_fleet(self):
        row = fleet.run(BUILD, "client", "steady", 2, {1: 40.0, 16: 10.0, 256: 4.0, 2048: 1.0}, 3)
        idle, a, b = row["model"]
        self.assertGreaterEqual(idle, 0)
        self.assertGreater(b, 0)
        self.assertGreater(row["measured_of_predicted"], 0)


class PageTest(unittest.TestCase):
    def test_every_scenario_and_way_is_explained(self):
        text = (ROOT / "docs/capacity.md").read_text(encoding="utf-8")
        for name in (*fleet.SCENARIOS, *fleet.WAYS):
            self.assertTrue(re.search(rf"`{name}`", text), name)


if __name__ == "__main__":
    unittest.main()
