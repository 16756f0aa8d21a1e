#!/usr/bin/python3
"""Tests of report.py."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import report

XML = """<testsuites><testsuite name="A">
<testcase name="Good" status="run" result="completed" classname="A"/>
<testcase name="Bad" status="run" result="completed" classname="A"><failure message="x"/></testcase>
<testcase name="Skip" status="run" result="skipped" classname="A"><skipped message="y"/></testcase>
<testcase name="Off" status="notrun" result="suppressed" classname="A"/>
</testsuite></testsuites>"""


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def configured(self, label):
        return json.dumps({"id": {"targetConfigured": {"label": label}},
                           "configured": {"targetKind": "cc_test rule"}})

    def result(self, label, status, xml=None, shard=1):
        event = {"id": {"testResult": {"label": label, "run": 1, "shard": shard}},
                 "testResult": {"status": status}}
        if xml is not None:
            path = self.folder / f"{label.strip('/')}-{shard}.xml"
            path.write_text(xml)
            event["testResult"]["testActionOutput"] = [{"name": "test.xml", "uri": path.as_uri()}]
        return json.dumps(event)

    def test_checks_and_junit_files_are_lanes(self):
        path = self.folder / "python.xml"
        path.write_text(XML)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = report.main([f"python tests={path}", "python=skipped", "lint=passed"])
        self.assertEqual(code, 1)
        self.assertEqual(printed.getvalue().splitlines()[-1], "2 passed, 1 failed, 3 skipped")
        self.assertIn("  SKIPPED: python check [checks]", printed.getvalue())

    def test_cases_are_counted_by_outcome(self):
        cases = report.cases_of_events([self.configured("//a"), self.result("//a", "FAILED", XML)])
        self.assertEqual(cases, {("//a", "A.Good"): "passed", ("//a", "A.Bad"): "failed",
                                 ("//a", "A.Skip"): "skipped", ("//a", "A.Off"): "skipped"})

    def test_a_death_after_the_last_case_is_a_failure(self):
        xml = '<testsuites><testcase name="Good" classname="A"/></testsuites>'
        cases = report.cases_of_events([self.result("//a", "FAILED", xml)])
        self.assertEqual(cases, {("//a", "A.Good"): "passed", ("//a", "(FAILED)"): "failed"})

    def test_a_time_out_without_results_is_a_failure(self):
        cases = report.cases_of_events([self.result("//a", "TIMEOUT")])
        self.assertEqual(cases, {("//a", "(TIMEOUT)"): "failed"})

    def test_a_target_that_did_not_build_is_a_failure(self):
        cases = report.cases_of_events([self.configured("//a")])
        self.assertEqual(cases, {("//a", "(not built or not run)"): "failed"})

    def test_the_last_attempt_counts(self):
        good = '<testsuites><testcase name="Good" classname="A"/></testsuites>'
        cases = report.cases_of_events([self.result("//a", "FAILED", XML),
                                        self.result("//a", "PASSED", good)])
        self.assertEqual(cases, {("//a", "A.Good"): "passed"})

    def test_frozen_results_stay_when_a_later_lane_overwrites_them(self):
        skipped = ('<testsuites><testcase name="Card" classname="A" result="skipped"/>'
                   '<testcase name="Bad" classname="A"><failure/></testcase></testsuites>')
        passed = '<testsuites><testcase name="Card" classname="A"/></testsuites>'
        events = self.folder / "events.json"
        events.write_text("\n".join([self.configured("//a"), self.result("//a", "FAILED", skipped),
                                     self.configured("//b")]))
        report.freeze(events)
        self.result("//a", "PASSED", passed)  # The same file anew.
        with open(events, encoding="utf-8") as file:
            cases = report.cases_of_events(file)
        self.assertEqual(cases, {("//a", "A.Card"): "skipped", ("//a", "A.Bad"): "failed",
                                 ("//b", "(not built or not run)"): "failed"})

    def test_a_case_of_two_lanes_counts_once_and_fails_if_one_fails(self):
        lanes = {"opt": {("//a", "X"): "passed", ("//a", "Y"): "skipped", ("//a", "Z"): "skipped"},
                 "asan": {("//a", "X"): "failed", ("//a", "Y"): "passed"}}
        lines, failed = report.summary(lanes)
        self.assertEqual(lines[-1], "1 passed, 1 failed, 1 skipped")
        self.assertEqual(failed, 1)
        self.assertIn("  FAILED: //a X [asan]", lines)
        self.assertIn("  SKIPPED: //a Z [opt]", lines)

    def test_the_last_line_leaves_out_no_skips(self):
        lines, failed = report.summary({"opt": {("//a", "X"): "passed"}})
        self.assertEqual((lines[-1], failed), ("1 passed, 0 failed", 0))


if __name__ == "__main__":
    unittest.main()
