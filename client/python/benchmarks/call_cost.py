"""What calls cost through the Python package, beside the C++ interface, in one run on one pool.

    call_cost.py CXX_PROGRAM [--rounds N]

with CISTERN_LIBRARY and CISTERN_BIN_DIR as for the package's tests. CXX_PROGRAM is
//client/python/benchmarks:call_cost. Chunks have 4 KiB: what is measured is calls and keys. The 10th
percentile (neighbours disturb the rest); the two take turns, three times, and the least of each counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable

import cistern
from cistern import dev

CHUNK = 4096
Figures = dict[tuple[str, int], float]


def measure(run: Callable[[], object], rounds: int) -> float:
    taken = []
    for i in range(rounds + rounds // 10):
        start = time.perf_counter_ns()
        run()
        if i >= rounds // 10:
            taken.append((time.perf_counter_ns() - start) / 1e3)
    return sorted(taken)[len(taken) // 10]


def of_python(pool: dev.DevPool, rounds: int, turn: int) -> Figures:
    out: Figures = {}
    with cistern.connect(pool.master, token_file=pool.token_file) as client:
        ns = client.namespace(f"call_cost_{turn}", "v1")
        for count in (1, 32, 1024):
            times = max(rounds // 8, 20) if count == 1024 else rounds
            buffer = client.allocate(count * CHUNK)
            spans = buffer.spans(CHUNK)
            raw = [f"{count}:{i}".encode() + b"k" * 48 for i in range(count)]
            out["hash", count] = measure(lambda: ns.keys(raw), times)
            keys = ns.keys(raw)
            assert ns.put(keys, spans, wait_visible=True).ok
            out["put_present", count] = measure(lambda: ns.put(keys, spans), times)

            def lookup() -> None:
                found = ns.lookup(keys)
                assert found.leading_run == count
                found.release()
                found.close()

            out["lookup", count] = measure(lookup, times)
            out["exists", count] = measure(lambda: ns.exists(keys), times)

            def get() -> None:
                assert ns.get(keys, spans).ok

            out["get", count] = measure(get, times)
            buffer.close()
    return out


def of_cxx(pool: dev.DevPool, program: str, rounds: int) -> Figures:
    text = subprocess.run([program, pool.master, pool.token_file, str(rounds)], check=True,
                          capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines()]
    return {(name, int(count)): float(us) for name, count, us in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=400)
    arguments = parser.parse_args()
    before = os.getloadavg()
    best: list[Figures] = [{}, {}]
    for turn in range(3):
        # A pool for each turn: what was put is there already otherwise.
        with dev.running(256 << 20) as pool:
            for which, figures in enumerate((of_cxx(pool, arguments.program, arguments.rounds),
                                             of_python(pool, arguments.rounds, turn))):
                for key, us in figures.items():
                    best[which][key] = min(us, best[which].get(key, us))
    print(f"load before {before[0]:.2f}, after {os.getloadavg()[0]:.2f}; {os.cpu_count()} processors")
    print("| call | keys | C++, us | Python, us | more a call, us | more a key, us |")
    print("|---|---|---|---|---|---|")
    for (name, count), cxx in best[0].items():
        python = best[1][name, count]
        print(f"| {name} | {count} | {cxx:.1f} | {python:.1f} | {python - cxx:.1f} "
              f"| {(python - cxx) / count:.2f} |")


if __name__ == "__main__":
    main()
