#!/usr/bin/python3
"""Adds up test results, from Bazel's build event files, one per lane.

Usage: report.py [LANE=EVENTS.json | LANE=JUNIT.xml | NAME=passed | NAME=failed | NAME=skipped]...
       report.py --freeze EVENTS.json

An event file only points to the results. Where a later lane runs the same tests in the same build,
it overwrites them: --freeze puts them into the event file's place.

Counts test cases, each once however many lanes ran it: failed if it failed in any, passed if it
passed in one, else skipped. A target that did not build, timed out or died counts as one failed
case. A check of another kind (NAME=passed) is one case. Prints a table, names what failed and what
was skipped, and ends with the line "N passed, N failed" (and ", N skipped" if any were).
"""

import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"
_FROZEN = "frozen"  # The one key of the one line that a frozen file has.
_WORSE = [SKIPPED, PASSED, FAILED]  # Of two lanes' words about one case, the later here counts.


def cases_of_xml(text):
    """{case: outcome} of one test.xml."""
    cases = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = FAILED
        elif (case.find("skipped") is not None or case.get("result") == SKIPPED
              or case.get("status") == "notrun"):
            outcome = SKIPPED
        else:
            outcome = PASSED
        cases[name] = outcome
    return cases


def _read_xml(result):
    for output in result.get("testActionOutput", []):
        if output.get("name") == "test.xml" and output.get("uri", "").startswith("file://"):
            path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    return cases_of_xml(file.read())
            except (OSError, ElementTree.ParseError):
                return {}
    return {}


def cases_of_events(lines):
    """{(target, case): outcome} of one run of Bazel, from the lines of its event file."""
    expected, results = set(), {}
    for line in lines:
        event = json.loads(line)
        if _FROZEN in event:
            return {(target, case): outcome for target, case, outcome in event[_FROZEN]}
        what = event.get("id", {})
        if "targetConfigured" in what and "configured" in event:
            if event["configured"].get("targetKind", "").endswith("_test rule"):
                expected.add(what["targetConfigured"]["label"])
        elif "testResult" in what and "testResult" in event:
            key = what["testResult"]
            # Of several attempts at a flaky test, the last one counts: it comes last.
            results[(key["label"], key.get("run", 1), key.get("shard", 1))] = event["testResult"]

    cases = {}
    for (target, _, _), result in results.items():
        found = _read_xml(result)
        status = result.get("status", "NO_STATUS")
        if status not in ("PASSED", "FLAKY") and FAILED not in found.values():
            found[f"({status})"] = FAILED
        elif not found:
            found["(whole target)"] = PASSED
        for case, outcome in found.items():
            cases[(target, case)] = worse(cases.get((target, case)), outcome)
    for target in expected - {target for target, _, _ in results}:
        cases[(target, "(not built or not run)")] = FAILED
    return cases


def worse(one, other):
    return other if one is None else max(one, other, key=_WORSE.index)


def count(cases, outcome):
    return sum(1 for o in cases.values() if o == outcome)


def summary(lanes):
    """The report's lines for {lane: {(target, case): outcome}}."""
    total, lines = {}, []
    for lane, cases in lanes.items():
        for key, outcome in cases.items():
            total[key] = worse(total.get(key), outcome)
        lines.append(f"  {lane:<24} " + ", ".join(
            f"{count(cases, outcome)} {outcome}" for outcome in (PASSED, FAILED, SKIPPED)))
    for outcome in (SKIPPED, FAILED):
        for target, case in sorted(k for k, o in total.items() if o == outcome):
            where = [lane for lane, cases in lanes.items() if cases.get((target, case)) == outcome]
            lines.append(f"  {outcome.upper()}: {target} {case} [{', '.join(where)}]")
    last = f"{count(total, PASSED)} passed, {count(total, FAILED)} failed"
    if count(total, SKIPPED):
        last += f", {count(total, SKIPPED)} skipped"
    return lines + [last], count(total, FAILED)


def freeze(path):
    with open(path, encoding="utf-8") as file:
        cases = cases_of_events(file)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({_FROZEN: [[target, case, outcome] for (target, case), outcome in cases.items()]},
                  file)


def main(arguments):
    if arguments[:1] == ["--freeze"]:
        freeze(arguments[1])
        return 0
    lanes = {}
    for argument in arguments:
        name, value = argument.split("=", 1)
        if value in _WORSE:
            lanes.setdefault("checks", {})[(name, "check")] = value
        elif value.endswith(".xml"):
            with open(value, encoding="utf-8") as file:
                lanes[name] = {(name, case): outcome
                               for case, outcome in cases_of_xml(file.read()).items()}
        else:
            with open(value, encoding="utf-8") as file:
                lanes[name] = cases_of_events(file)
    lines, failed = summary(lanes)
    print("\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
