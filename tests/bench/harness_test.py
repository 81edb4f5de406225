# SPDX-License-Identifier: Apache-2.0
"""bench/peers/harness.py: the order of candidates."""

import collections
import itertools
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/peers"))
import harness


class Order(unittest.TestCase):
    def test_each_follows_each_other_one_equally_often(self):
        for names in ("ab", "abc", "abcd", "abcde"):
            rounds = [harness.order_of(names, turn) for turn in range(2 * len(names))]
            for order in rounds:
                self.assertEqual(sorted(order), list(names))
            pairs = collections.Counter(pair for order in rounds for pair in itertools.pairwise(order))
            self.assertEqual(pairs, {pair: 2 for pair in itertools.permutations(names, 2)})

    def test_each_runs_once_in_a_round(self):
        runs = []
        candidates = {name: lambda name=name: runs.append(name) for name in "ab"}
        harness.median_seconds(candidates, 2, 0)
        self.assertEqual("".join(runs), "aabb" + "ab" + "ba")  # twice each to see how long a run takes


if __name__ == "__main__":
    unittest.main()
