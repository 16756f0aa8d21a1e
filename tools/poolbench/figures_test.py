#!/usr/bin/python3
"""What tools/figures makes of poolbench's JSON."""

import unittest

import figures


def report(results):
    return {"machine": "M", "kernel": "K", "build_mode": "opt", "commit": "c0ffee",
            "load_before": 0.5, "load_after": 1.25, "results": results}


GET = {"operation": "get", "chunk_bytes": 1 << 20, "batch": 16, "spans": 1, "median": 2e9,
       "figures": [],
       "limits": [{"name": "bare TCP pair", "ratio": 0.8}, {"name": "memcpy", "ratio": 0.3}]}
GET_SPANS = dict(GET, spans=64, median=1e9)
SMALL = {"operation": "get", "chunk_bytes": 4096, "batch": 1, "spans": 1, "median": 1e8,
         "p50_us": 70, "figures": [],
         "limits": [{"name": "bare TCP round trip", "ratio": 0.5, "calls_per_call": 1.75}]}
INDEX = {"operation": "index", "chunk_bytes": 65536, "batch": 16, "spans": 1,
         "figures": [{"name": "bytes a chunk, resident", "value": 95.5, "unit": "B"}]}


class FindTest(unittest.TestCase):
    def test_finds_by_operation_and_sizes(self):
        both = report([GET_SPANS, GET])
        self.assertEqual(figures.rate("get", 1e9, spans=1)(both), 2)
        self.assertEqual(figures.rate("get", 1e9, spans=64)(both), 1)
        self.assertEqual(figures.ratio("get", "memcpy", spans=1)(both), 0.3)
        self.assertIsNone(figures.ratio("get", "gRPC echo")(both))
        self.assertIsNone(figures.rate("put")(both))
        self.assertIsNone(figures.ratio("put", "memcpy")(both))

    def test_finds_calls_and_figures(self):
        both = report([SMALL, INDEX])
        self.assertEqual(figures.calls("get", "bare TCP round trip", batch=1)(both), 1.75)
        self.assertEqual(figures.figure("bytes a chunk, resident")(both), 95.5)
        self.assertIsNone(figures.figure("bytes a chunk, resident", "get")(both))
        self.assertIsNone(figures.figure("no such thing")(both))


class GoalTest(unittest.TestCase):
    def test_is_met_from_its_bound_on(self):
        least = figures.Goal("r", "w", None, least=0.85)
        self.assertTrue(least.met(0.85))
        self.assertFalse(least.met(0.849))
        self.assertEqual(least.goal_text(), "≥ 0.85")
        most = figures.Goal("r", "w", None, most=0, text="{:.0f}")
        self.assertTrue(most.met(0))
        self.assertFalse(most.met(1))
        self.assertEqual(most.goal_text(), "≤ 0")
        self.assertIsNone(figures.Goal("r", "w", None).met(1))

    def test_rows_say_met_missed_and_not_measured(self):
        goals = [figures.Goal("tcp", "a", figures.ratio("get", "bare TCP pair"), least=0.85),
                 figures.Goal("tcp", "b", figures.ratio("get", "memcpy"), least=0.25),
                 figures.Goal("tcp", "c", figures.rate("put"), least=1),
                 figures.Goal("shm", "d", figures.rate("put"), least=1)]
        self.assertEqual(figures.rows(goals, {"tcp": report([GET])}),
                         [("tcp", "a", "0.80", "≥ 0.85", "**missed**"),
                          ("tcp", "b", "0.30", "≥ 0.25", "met"),
                          ("tcp", "c", "-", "≥ 1.00", "not measured")])

    def test_the_table_says_where_and_when(self):
        table = figures.markdown(figures.GOALS, {"index": report([INDEX])})
        self.assertIn("Commit c0ffee, build opt; M, K; load average 0.50 to 1.25", table)
        self.assertIn("| index | bytes a chunk, master's memory | 95.5 B | ≤ 96.0 B | met |", table)

    def test_every_goal_names_a_run(self):
        for goal in figures.GOALS:
            self.assertIn(goal.run, figures.RUNS)


if __name__ == "__main__":
    unittest.main()
