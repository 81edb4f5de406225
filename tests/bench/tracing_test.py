# SPDX-License-Identifier: Apache-2.0
"""tracing_test.py BUILD: bench/tracing.py: with every kind of collector no call fails, and the spans are
accounted for. Compares no times. Exit status 77: there is no grpcio, which the collectors need."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
try:
    import tracing
except ImportError as missing:
    print(f"SKIP: {missing}: run with build/.venv-oip, which the tests of tests/oip make")
    sys.exit(77)


class RunTest(unittest.TestCase):
    def test_no_call_fails_and_every_span_is_exported_or_dropped(self):
        rows = {row["collector"]: row for row in tracing.measure(BUILD, 2, 0.2)}
        self.assertEqual(set(rows), set(tracing.COLLECTORS))
        for kind, row in rows.items():
            self.assertGreater(row["calls"], 0, kind)
            self.assertEqual(row["failed"], 0, kind)
            if kind != "none":
                spans = row["exported"] + row["dropped"]
                self.assertGreaterEqual(spans, tracing.SPANS_OF_A_CALL * row["calls"], kind)
        self.assertEqual(rows["none"]["exported"] + rows["none"]["dropped"], 0)
        self.assertEqual(rows["dead"]["exported"], 0)
        self.assertGreater(rows["takes"]["exported"], 0)


if __name__ == "__main__":
    unittest.main()
