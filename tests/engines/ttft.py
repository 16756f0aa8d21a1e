#!/usr/bin/env python3
"""Measures the time to the first token: computed, loaded from the pool, and kept by the engine itself.

    tools/engines_check --run tests/engines/ttft.py -- [--model smollm2] [--tokens 1000,4000] [--rounds 5]
                                                      [--out FILE]

Each round takes a prompt of its own: with the pool it is computed and saved ("miss"), loaded after the
engine has forgotten it ("pool"), and asked once more ("local": the engine's own prefix cache, the floor).
Medians over the rounds, in seconds; one engine at a time. `cold` is an engine without a pool.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from conftest import Engine, eventually, stored

from cistern import dev

BLOCK = 128


def prompts(seed: int, tokens: int, vocabulary: int) -> list[int]:
    numbers = random.Random(seed)
    return [numbers.randrange(3, vocabulary) for _ in range(tokens)]


def first_token(engine: Engine, prompt: list[int]) -> float:
    (seconds,) = engine.generate(prompt, max_tokens=2)["ttft"]
    return float(seconds)


def measure(engine: Engine, pool: dev.DevPool | None, lengths: list[int], rounds: int,
            vocabulary: int) -> dict[int, dict[str, list[float]]]:
    engine.generate(prompts(999, 300, vocabulary), max_tokens=2)  # warms up
    found: dict[int, dict[str, list[float]]] = {}
    for tokens in lengths:
        rows: dict[str, list[float]] = {}
        for i in range(rounds):
            prompt = prompts(1000 * tokens + i, tokens, vocabulary)
            before = stored(pool) if pool else 0
            rows.setdefault("miss" if pool else "cold", []).append(first_token(engine, prompt))
            if pool:
                assert eventually(lambda: stored(pool) >= before + tokens // BLOCK)
                assert engine.ask("reset")["reset"]
                loaded = engine.generate(prompt, max_tokens=2)
                assert loaded["cached"][0] >= tokens // BLOCK * BLOCK - 1
                rows.setdefault("pool", []).append(float(loaded["ttft"][0]))
            rows.setdefault("local", []).append(first_token(engine, prompt))
            assert engine.ask("reset")["reset"]
        found[tokens] = rows
    return found


def run(arguments: argparse.Namespace, models: Path) -> dict[str, Any]:
    lengths = [int(one) for one in arguments.tokens.split(",")]
    config = json.loads((models / arguments.model / "config.json").read_text())
    llm = {"max_model_len": max(lengths) + BLOCK, "max_num_batched_tokens": 2048,
           "dtype": config["torch_dtype"]}
    report: dict[str, Any] = {"model": arguments.model, "rounds": arguments.rounds, "wires": {}}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "engine.log"
        for wire in (None, *arguments.wires.split(",")):
            if wire is None:
                with Engine(models / arguments.model, log=log, **llm) as engine:
                    report["versions"] = engine.ask("versions")["versions"]
                    report["plain"] = measure(engine, None, lengths, arguments.rounds,
                                              config["vocab_size"])
                continue
            with dev.running(arguments.pool_mib << 20) as pool:
                connector = {"kv_connector": "CisternConnector", "kv_role": "kv_both",
                             "kv_connector_module_path": "cistern.vllm",
                             "kv_load_failure_policy": "recompute",
                             "kv_connector_extra_config": {
                                 "master_address": pool.master, "pool_token_file": pool.token_file,
                                 "wire": wire, "offload_mode": arguments.mode, "load_deadline": 30}}
                with Engine(models / arguments.model, connector, log=log, **llm) as engine:
                    report["wires"][wire] = measure(engine, pool, lengths, arguments.rounds,
                                                    config["vocab_size"])
    return report


def table(report: dict[str, Any]) -> str:
    lines = ["| tokens | row | first token, s (median; least to most) | of local | cold / row |",
             "|---|---|---|---|---|"]
    for tokens, plain in report["plain"].items():
        cold = statistics.median(plain["cold"])
        rows = [("no pool, computed", plain["cold"], plain), ("no pool, own cache", plain["local"], plain)]
        for wire, lengths in report["wires"].items():
            rows += [(f"{wire}, {what}", lengths[tokens][what], lengths[tokens])
                     for what in ("miss", "pool", "local")]
        for name, values, beside in rows:
            middle = statistics.median(values)
            lines.append(f"| {tokens} | {name} | {middle:.3f}; {min(values):.3f} to {max(values):.3f} | "
                         f"{middle / statistics.median(beside['local']):.2f} | {cold / middle:.1f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", default="1000,4000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mode", default="async", choices=("async", "sync"))
    parser.add_argument("--wires", default="shm,tcp")
    parser.add_argument("--pool-mib", type=int, default=2048)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    models = Path(os.environ["CISTERN_ENGINE_MODELS"])
    load = os.getloadavg()[0]
    report = run(arguments, models)
    report |= {"when": time.strftime("%Y-%m-%d"), "processors": os.cpu_count(), "mode": arguments.mode,
               "load": [round(load, 2), round(os.getloadavg()[0], 2)]}
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({name: report[name] for name in ("model", "versions", "load", "processors", "mode")}))
    print(table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
