#!/usr/bin/python3
"""Runs poolbench's whole set and sets each figure beside its goal; started by tools/figures.

Usage: figures.py --poolbench FILE --out DIR [--commit ID] [--only RUN,...] [--short]

Writes DIR/RUN.json for each run, as poolbench made it, and DIR/figures.md, a table of all of them.
Exit codes: 0 measured (met or missed, the table says); 1 a run failed.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

MIB, KIB = 1 << 20, 1 << 10

# name -> poolbench's arguments. Together they take about ten minutes.
RUNS = {
    "tcp": ["--baseline", "--rounds", "5", "--seconds", "1",
            "--case", "get chunk=1MiB batch=16",
            "--case", "put chunk=1MiB batch=16",
            "--case", "get chunk=64KiB batch=64",
            "--case", "put chunk=64KiB batch=64",
            "--case", "get chunk=1MiB batch=16 spans=64",
            "--case", "put chunk=1MiB batch=16 spans=64",
            "--case", "get chunk=4KiB batch=128",
            "--case", "put chunk=4KiB batch=128",
            "--case", "mixed chunk=64KiB batch=16"],
    "shm": ["--wire", "shm", "--baseline", "--rounds", "5", "--seconds", "1",
            "--case", "get chunk=1MiB batch=16",
            "--case", "put chunk=1MiB batch=16",
            "--case", "get chunk=64KiB batch=64",
            "--case", "put chunk=64KiB batch=64",
            "--case", "get chunk=1MiB batch=16 spans=64",
            "--case", "put chunk=1MiB batch=16 spans=64"],
    "foreign": ["--wire", "shm", "--memory", "foreign", "--baseline", "--rounds", "3",
                "--seconds", "1",
                "--case", "get chunk=1MiB batch=16",
                "--case", "put chunk=1MiB batch=16"],
    "small": ["--baseline", "--rounds", "5", "--seconds", "1", "--working-set", "64MiB",
              "--case", "get chunk=4KiB batch=1",
              "--case", "put chunk=4KiB batch=1",
              "--case", "lookup batch=1",
              "--case", "lookup batch=128"],
    "index": ["index", "--baseline", "--rounds", "5", "--seconds", "1"],
    "overload": ["overload", "--pool-bytes", "1GiB"],
    "fill": ["fill"],
    "replay": ["replay"],
}

# What replaces it for a first look, and for the test of this script.
SHORT = ["--rounds", "1", "--seconds", "0.1", "--working-set", "16MiB", "--pool-bytes", "64MiB",
         "--requests", "20", "--index-chunks", "40000", "--evictions", "5000",
         "--rebuild-chunks", "20000"]


class Goal:
    """One row: where its value is found, and from when on it is met."""

    def __init__(self, run, what, find, least=None, most=None, text="{:.2f}"):
        self.run, self.what, self.find = run, what, find
        self.least, self.most, self.text = least, most, text

    def met(self, value):
        """True, False, or None where there is no goal."""
        if self.least is not None:
            return value >= self.least
        if self.most is not None:
            return value <= self.most
        return None

    def goal_text(self):
        if self.least is not None:
            return "≥ " + self.text.format(self.least)
        if self.most is not None:
            return "≤ " + self.text.format(self.most)
        return ""


def result_of(report, operation, chunk=None, batch=None, spans=None):
    """The first result that fits; None where there is none."""
    for result in report["results"]:
        if (result["operation"] == operation and chunk in (None, result["chunk_bytes"])
                and batch in (None, result["batch"]) and spans in (None, result["spans"])):
            return result
    return None


def ratio(operation, limit, **sizes):
    """Finds a result's rate as a share of a limit's."""
    def find(report):
        result = result_of(report, operation, **sizes)
        for bound in (result or {}).get("limits", []):
            if bound["name"] == limit:
                return bound["ratio"]
        return None
    return find


def rate(operation, scale=1.0, **sizes):
    def find(report):
        result = result_of(report, operation, **sizes)
        return None if result is None else result["median"] / scale
    return find


def calls(operation, limit, **sizes):
    """Finds how many of a limit's calls one of ours takes, by medians."""
    def find(report):
        result = result_of(report, operation, **sizes)
        for bound in (result or {}).get("limits", []):
            if bound["name"] == limit:
                return bound.get("calls_per_call")
        return None
    return find


def figure(name, operation=None, **sizes):
    """Finds a named figure, in any result or in that of an operation."""
    def find(report):
        results = report["results"] if operation is None else [
            result_of(report, operation, **sizes)]
        for result in filter(None, results):
            for one in result["figures"]:
                if one["name"] == name:
                    return one["value"]
        return None
    return find


GB = "{:.2f} GB/s"
MKEYS = "{:.2f} M keys/s"
US = "{:.2f} us"

GOALS = [
    Goal("tcp", "get 1 MiB / bare TCP pair",
         ratio("get", "bare TCP pair", chunk=MIB, spans=1), least=0.85),
    Goal("tcp", "get 1 MiB", rate("get", 1e9, chunk=MIB, spans=1), text=GB),
    Goal("tcp", "put 1 MiB / bare TCP pair",
         ratio("put", "bare TCP pair", chunk=MIB, spans=1), least=0.90),
    Goal("tcp", "put 1 MiB", rate("put", 1e9, chunk=MIB, spans=1), text=GB),
    Goal("tcp", "get 64 KiB, 64 a call / bare TCP pair",
         ratio("get", "bare TCP pair", chunk=64 * KIB, batch=64), least=0.75),
    Goal("tcp", "get 64 KiB, 64 a call", rate("get", 1e9, chunk=64 * KIB, batch=64), text=GB),
    Goal("tcp", "put 64 KiB, 64 a call / bare TCP pair",
         ratio("put", "bare TCP pair", chunk=64 * KIB, batch=64), least=0.75),
    Goal("tcp", "put 64 KiB, 64 a call", rate("put", 1e9, chunk=64 * KIB, batch=64), text=GB),
    Goal("tcp", "get 1 MiB of 64 spans / bare TCP pair",
         ratio("get", "bare TCP pair", chunk=MIB, spans=64), least=0.70),
    Goal("tcp", "put 1 MiB of 64 spans / bare TCP pair",
         ratio("put", "bare TCP pair", chunk=MIB, spans=64), least=0.70),
    Goal("tcp", "get 4 KiB, 128 a call, chunks", rate("get", 4096e6, chunk=4096, batch=128),
         text="{:.3f} M/s"),
    Goal("tcp", "put 4 KiB, 128 a call, chunks", rate("put", 4096e6, chunk=4096, batch=128),
         text="{:.3f} M/s"),
    Goal("tcp", "master CPU a key, placed and committed",
         figure("master CPU a key", "put", chunk=4096, batch=128), most=1.0, text=US),
    Goal("tcp", "mixed 64 KiB, 80 % gets", rate("mixed", 1e9), text=GB),
    Goal("shm", "get 1 MiB / memcpy", ratio("get", "memcpy", chunk=MIB, spans=1), least=0.80),
    Goal("shm", "get 1 MiB / memcpy and digest",
         ratio("get", "memcpy and digest", chunk=MIB, spans=1)),
    Goal("shm", "get 1 MiB", rate("get", 1e9, chunk=MIB, spans=1), text=GB),
    Goal("shm", "put 1 MiB / memcpy", ratio("put", "memcpy", chunk=MIB, spans=1), least=0.80),
    Goal("shm", "put 1 MiB / memcpy and digest",
         ratio("put", "memcpy and digest", chunk=MIB, spans=1)),
    Goal("shm", "put 1 MiB", rate("put", 1e9, chunk=MIB, spans=1), text=GB),
    Goal("shm", "get 64 KiB, 64 a call / memcpy",
         ratio("get", "memcpy", chunk=64 * KIB, batch=64)),
    Goal("shm", "put 64 KiB, 64 a call / memcpy",
         ratio("put", "memcpy", chunk=64 * KIB, batch=64)),
    Goal("shm", "get 1 MiB of 64 spans / memcpy", ratio("get", "memcpy", chunk=MIB, spans=64)),
    Goal("shm", "put 1 MiB of 64 spans / memcpy", ratio("put", "memcpy", chunk=MIB, spans=64)),
    Goal("foreign", "get 1 MiB into the caller's own memory / memcpy",
         ratio("get", "memcpy", chunk=MIB)),
    Goal("foreign", "put 1 MiB from the caller's own memory / memcpy",
         ratio("put", "memcpy", chunk=MIB)),
    Goal("small", "one get of 4 KiB, in bare round trips",
         calls("get", "bare TCP round trip", chunk=4096, batch=1), most=2.0),
    Goal("small", "one get of 4 KiB, p50",
         lambda report: (result_of(report, "get", batch=1) or {}).get("p50_us"), text=US),
    Goal("small", "one put of 4 KiB, p50",
         lambda report: (result_of(report, "put", batch=1) or {}).get("p50_us"), text=US),
    Goal("small", "lookup of 1 key / bare echo",
         ratio("lookup", "bare TCP echo", batch=1), least=0.70),
    Goal("small", "lookup of 128 keys / bare echo",
         ratio("lookup", "bare TCP echo", batch=128), least=0.70),
    Goal("index", "lookup of 1 key among 5 M / bare echo",
         figure("lookup of 1 key / bare echo"), least=0.70),
    Goal("index", "lookup of 128 keys among 5 M / bare echo",
         figure("lookup of 128 keys / bare echo"), least=0.70),
    Goal("index", "lookup of 1,024 keys among 5 M", figure("lookup of 1,024 keys"), least=4.0,
         text=MKEYS),
    Goal("index", "lookup of 6,000 keys among 5 M", figure("lookup of 6,000 keys"), least=6.0,
         text=MKEYS),
    Goal("index", "master CPU a call, lookup of 1 key",
         figure("lookup of 1 key: master CPU a call"), most=40.0, text=US),
    Goal("index", "master CPU a key, lookup of 1,024 keys",
         figure("lookup of 1,024 keys: master CPU a key"), most=0.30, text=US),
    Goal("index", "master CPU a key, lookup of 6,000 keys",
         figure("lookup of 6,000 keys: master CPU a key"), most=0.30, text=US),
    Goal("index", "bytes a chunk, master's memory", figure("bytes a chunk, resident"), most=96.0,
         text="{:.1f} B"),
    Goal("index", "longest hold of the master's lock, its holder's time",
         figure("lock held longest, the holder's own time"), most=200.0, text=US),
    Goal("index", "longest hold of the master's lock, wall clock",
         figure("lock held longest, on the wall clock"), text=US),
    Goal("index", "lookup p99 of 64 keys while evicting 50,000/s, over that without",
         figure("lookup p99 while evicting / without"), most=2.0),
    Goal("index", "seconds until a restarted master knows a million chunks",
         figure("seconds from then until it knows all"), most=2.0, text="{:.2f} s"),
    Goal("overload", "chunks refused of three pools' bytes, all leased",
         figure("chunks refused"), most=0.0, text="{:.0f}"),
    Goal("overload", "put, median of windows of 100 ms", figure("put, median window"),
         text="{:.3g} B/s"),
    Goal("overload", "slowest window / median", figure("slowest window / median")),
    Goal("fill", "payload of a full segment, one size",
         figure("payload of a full segment, one size: median"), least=0.95, text="{:.3f}"),
    Goal("fill", "payload of a full segment, mixed sizes",
         figure("payload of a full segment, mixed sizes: median"), least=0.95, text="{:.3f}"),
    Goal("replay", "prompt tokens not computed again",
         figure("prompt tokens not computed again"), text="{:.3f}"),
    Goal("replay", "put and got, whole run", figure("put and got, whole run"), text="{:.3g} B/s"),
]


def rows(goals, reports):
    """[(run, what, value's text, goal's text, word)] of the runs that are there."""
    out = []
    for goal in goals:
        report = reports.get(goal.run)
        if report is None:
            continue
        value = goal.find(report)
        if value is None:
            out.append((goal.run, goal.what, "-", goal.goal_text(), "not measured"))
            continue
        met = goal.met(value)
        word = "" if met is None else "met" if met else "**missed**"
        out.append((goal.run, goal.what, goal.text.format(value), goal.goal_text(), word))
    return out


def markdown(goals, reports):
    first = next(iter(reports.values()))
    loads = [load for report in reports.values()
             for load in (report["load_before"], report["load_after"])]
    lines = [
        "# Figures", "",
        f"Commit {first['commit']}, build {first['build_mode']}; {first['machine']}, "
        f"{first['kernel']}; load average {min(loads):.2f} to {max(loads):.2f}, poolbench's own "
        "included. Medians of rounds, limits measured in the same run. Made by `tools/figures`.",
        "", "| run | what | measured | goal | |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows(goals, reports)]
    return "\n".join(lines) + "\n"


def main(arguments):
    parser = argparse.ArgumentParser(description="Runs poolbench's whole set.")
    parser.add_argument("--poolbench", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--commit", default="")
    parser.add_argument("--only", default="", help="names of runs, with commas")
    parser.add_argument("--short", action="store_true", help="a minute's look, no figures")
    flags = parser.parse_args(arguments)
    names = [name for name in flags.only.split(",") if name] or list(RUNS)
    unknown = [name for name in names if name not in RUNS]
    if unknown:
        parser.error(f"no run is called {unknown[0]}; there are {', '.join(RUNS)}")
    out = pathlib.Path(flags.out)
    out.mkdir(parents=True, exist_ok=True)
    reports, failed = {}, []
    for name in names:
        path = out / f"{name}.json"
        command = [flags.poolbench, *RUNS[name], "--json", str(path)]
        if flags.commit:
            command += ["--commit", flags.commit]
        if flags.short:
            # The last of an option counts.
            command += SHORT
        print(f"== {name}", flush=True)
        started = time.monotonic()
        if subprocess.run(command, check=False).returncode != 0:
            failed.append(name)
            continue
        print(f"== {name}: {time.monotonic() - started:.0f} s\n", flush=True)
        reports[name] = json.loads(path.read_text())
    if reports:
        table = markdown(GOALS, reports)
        (out / "figures.md").write_text(table)
        print(table)
    if failed:
        print(f"tools/figures: failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
