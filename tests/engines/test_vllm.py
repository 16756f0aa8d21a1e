"""Real vLLM over a real pool: equal tokens, counted hits, and what happens when something is wrong.

Beside each test of equality stands one in which stored bytes are harmed: a test that cannot fail shows
nothing.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
import segment
from conftest import BLOCK, eventually, stats, stop, store_of, stored

from cistern import dev

PROMPT_TOKENS = 1000
BLOCKS = PROMPT_TOKENS // BLOCK  # full ones: 7
TOKENS = 8  # generated


def prompt(seed: int, tokens: int = PROMPT_TOKENS, vocabulary: int = 1024) -> list[int]:
    numbers = random.Random(seed)
    return [numbers.randrange(3, vocabulary) for _ in range(tokens)]


@pytest.fixture(scope="module")
def expected(models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """What the tiny models answer without a pool."""
    from conftest import Engine

    found = {}
    log = tmp_path_factory.mktemp("plain") / "engine.log"
    for model in ("tiny", "tiny-2"):
        with Engine(models / model, log=log, max_model_len=4096, max_num_batched_tokens=512,
                    dtype="float32") as plain:
            print(plain.ask("versions")["versions"])
            for seed in range(1, 4):
                (found[f"{model}-{seed}"],) = plain.generate(prompt(seed), max_tokens=TOKENS)["tokens"]
    assert found["tiny-1"] != found["tiny-2-1"]
    return found


def check_hit(engine, before, tokens):
    """The engine's own counters: so many tokens came from outside."""
    after = engine.metrics()
    name = "vllm:external_prefix_cache_hits"
    assert after[name] - before.get(name, 0) == tokens
    source = "vllm:prompt_tokens_by_source[external_kv_transfer]"
    assert after[source] - before.get(source, 0) == tokens


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_another_process_loads_what_the_first_computed(start, pool, expected, mode):
    with start("tiny", pool, offload_mode=mode) as first:
        found = first.generate(prompt(1), max_tokens=TOKENS)
        assert found["tokens"] == [expected["tiny-1"]]
        assert found["cached"] == [0]
        assert eventually(lambda: stored(pool) == BLOCKS)
    with start("tiny", pool, offload_mode=mode) as second:
        before = second.metrics()
        found = second.generate(prompt(1), max_tokens=TOKENS)
        assert found["tokens"] == [expected["tiny-1"]]
        assert found["cached"] == [BLOCKS * BLOCK]
        check_hit(second, before, BLOCKS * BLOCK)
        assert second.metrics()["vllm:cistern_verified_bytes"] == BLOCKS * BLOCK * 4096
        # A prompt that goes on otherwise after 3 blocks loads 3, and its end is saved.
        other = prompt(1)[:3 * BLOCK] + prompt(2)[3 * BLOCK:]
        assert second.again(other, max_tokens=TOKENS)["cached"] == [3 * BLOCK]
        assert eventually(lambda: stored(pool) == BLOCKS + 4)
    (store,) = stats(pool)["stores"]
    assert store["get_hits"] == BLOCKS + 3
    assert stats(pool)["namespaces"][0]["name"].startswith("vllm/tiny-")


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_harmed_bytes_change_the_answer_unless_they_are_verified(start, expected, mode):
    """The negative control of every equality here."""
    for verify, same in (("off", False), ("always", True)):
        with dev.running(256 << 20) as pool:
            with start("tiny", pool, offload_mode=mode, verify=verify) as engine:
                engine.generate(prompt(1), max_tokens=TOKENS)
                assert eventually(lambda: stored(pool) == BLOCKS)
                for chunk in segment.chunks(pool.segment_dir):
                    segment.harm(chunk)
                found = engine.again(prompt(1), max_tokens=TOKENS)
                assert (found["tokens"] == [expected["tiny-1"]]) is same
                loaded = engine.metrics().get("vllm:cistern_loaded_chunks", 0)
                assert loaded == (0 if same else BLOCKS)


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("policy", ["recompute", "fail"])
def test_blocks_that_are_bad(start, pool, expected, mode, policy):
    """The first, a middle and the last one, under both of the engine's policies."""
    with start("tiny", pool, offload_mode=mode, policy=policy) as engine:
        for seed, bad in ((1, 0), (2, 3), (3, BLOCKS - 1)):
            engine.again(prompt(seed), max_tokens=TOKENS)
            assert eventually(lambda: stored(pool) == BLOCKS * seed)
            segment.harm(segment.chunks(pool.segment_dir)[BLOCKS * (seed - 1) + bad])
            found = engine.again(prompt(seed), max_tokens=TOKENS)
            if policy == "recompute":
                assert found["tokens"] == [expected[f"tiny-{seed}"]]
            else:
                assert found["finish"] == ["error"]
                assert found["tokens"] == [[]]
                found = engine.again(prompt(seed), max_tokens=TOKENS)
                assert found["tokens"] == [expected[f"tiny-{seed}"]]
            # The bad one was dropped, computed, and put again: now all are good.
            assert eventually(lambda: stored(pool) == BLOCKS * seed)
            before = engine.metrics()
            found = engine.again(prompt(seed), max_tokens=TOKENS)
            assert found["tokens"] == [expected[f"tiny-{seed}"]]
            check_hit(engine, before, BLOCKS * BLOCK)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_store_that_goes_away_during_the_load(start, expected, mode):
    with dev.running(256 << 20) as pool:
        with start("tiny", pool, offload_mode=mode, load_deadline=2.0, save_deadline=1.0) as engine:
            engine.generate(prompt(1), max_tokens=TOKENS)
            assert eventually(lambda: stored(pool) == BLOCKS)
            assert engine.ask("reset")["reset"]
            # It stands still: the load ends at its deadline.
            store = store_of(pool)
            stop(store.pid)
            started = time.monotonic()
            assert engine.generate(prompt(1), max_tokens=TOKENS)["tokens"] == [expected["tiny-1"]]
            assert time.monotonic() - started < 60
            os.kill(store.pid, signal.SIGCONT)
            # It dies while the load waits for it.
            assert eventually(lambda: stats(pool)["stores"][0]["state"] == "serving")
            assert engine.ask("reset")["reset"]
            stop(store.pid)
            engine.tell("generate", prompts=[prompt(1)], max_tokens=TOKENS)
            time.sleep(0.3)
            store.kill()
            assert engine.answer()["tokens"] == [expected["tiny-1"]]
            store.wait()
            # Nobody is there any more, and it goes on.
            assert engine.again(prompt(2), max_tokens=TOKENS)["tokens"] == [expected["tiny-2"]]


def test_no_pool_at_the_start_and_a_store_that_comes_back(start, expected):
    with dev.running(256 << 20) as pool:
        store = store_of(pool)
        with start("tiny", pool) as engine:
            assert engine.generate(prompt(1), max_tokens=TOKENS)["tokens"] == [expected["tiny-1"]]
            assert eventually(lambda: stored(pool) == BLOCKS)
            # Killed and started again: its chunks are still there.
            store.kill()
            store.wait()
            pool.daemons[1] = ("store-0", dev._launch(pool, "cistern-store", "store-0"))
            assert eventually(lambda: stats(pool)["stores"][0]["state"] == "serving"
                              and stored(pool) == BLOCKS)
            before = engine.metrics()
            assert engine.again(prompt(1), max_tokens=TOKENS)["tokens"] == [expected["tiny-1"]]
            check_hit(engine, before, BLOCKS * BLOCK)
        away = dev.DevPool(pool.dir, pool.segment_dir, master="127.0.0.1:1")
        with start("tiny", away) as engine:
            found = engine.generate(prompt(1), max_tokens=TOKENS)
            assert found["tokens"] == [expected["tiny-1"]] and found["cached"] == [0]
            assert engine.said("no pool at 127.0.0.1:1")


def test_what_must_not_be_shared_is_not(start, pool, expected):
    """Another model, or another salt, with the same prompt."""
    with start("tiny", pool) as first:
        first.generate(prompt(1), max_tokens=TOKENS)
        assert eventually(lambda: stored(pool) == BLOCKS)
        salted = first.again(prompt(1), max_tokens=TOKENS, salt="tenant-a")
        assert salted["cached"] == [0] and salted["tokens"] == [expected["tiny-1"]]
        assert eventually(lambda: stored(pool) == 2 * BLOCKS)
        for salt, cached in (("tenant-a", BLOCKS * BLOCK), ("tenant-b", 0), (None, BLOCKS * BLOCK)):
            assert first.again(prompt(1), max_tokens=TOKENS, salt=salt)["cached"] == [cached]
    with start("tiny-2", pool, model_name="tiny") as second:
        found = second.generate(prompt(1), max_tokens=TOKENS)
        assert found["cached"] == [0] and found["tokens"] == [expected["tiny-2-1"]]
    names = {one["name"] for one in stats(pool)["namespaces"]}
    assert len(names) == 2 and all(name.startswith("vllm/tiny-") for name in names)


def test_part_of_it_is_evicted(start, expected):
    """Other prompts fill a small pool; suffixes leave before their prefixes."""
    with dev.running(64 << 20) as small:
        with start("tiny", small) as engine:
            engine.generate(prompt(1), max_tokens=TOKENS)
            assert eventually(lambda: stored(small) == BLOCKS)
            for seed in range(100, 118):
                engine.generate(prompt(seed), max_tokens=2)
            assert eventually(lambda: stats(small)["pool"]["evictions_by_cause"])
            for seed in (1, 2):
                found = engine.again(prompt(seed), max_tokens=TOKENS)
                assert found["tokens"] == [expected[f"tiny-{seed}"]]


def test_producer_and_consumer(start, pool, expected):
    with start("tiny", pool, role="kv_consumer") as consumer:
        consumer.generate(prompt(1), max_tokens=TOKENS)
        time.sleep(0.5)
        assert stored(pool) == 0
    with start("tiny", pool, role="kv_producer") as producer:
        producer.generate(prompt(1), max_tokens=2)
        assert eventually(lambda: stored(pool) == BLOCKS)
        assert producer.again(prompt(1), max_tokens=2)["cached"] == [0]
    with start("tiny", pool, role="kv_consumer") as consumer:
        found = consumer.generate(prompt(1), max_tokens=TOKENS)
        assert found["cached"] == [BLOCKS * BLOCK] and found["tokens"] == [expected["tiny-1"]]


def test_requests_at_once(start, pool, expected):
    """Some that hit, some that do not, in one batch."""
    seeds = [1, 2, 3, 1, 2]
    with start("tiny", pool) as engine:
        engine.generate(prompt(1), max_tokens=TOKENS)
        assert eventually(lambda: stored(pool) == BLOCKS)
        found = engine.again(*(prompt(seed) for seed in seeds), max_tokens=TOKENS)
        assert found["tokens"] == [expected[f"tiny-{seed}"] for seed in seeds]
        assert eventually(lambda: stored(pool) == 3 * BLOCKS)
        found = engine.again(*(prompt(seed) for seed in seeds), max_tokens=TOKENS)
        assert found["tokens"] == [expected[f"tiny-{seed}"] for seed in seeds]


def test_a_real_language_model(start, pool):
    text = ("The following is a list of facts about the countries of Europe. " * 40
            + "The capital of France is")
    llm = {"dtype": "bfloat16", "skip_tokenizer_init": False}
    with start("smollm2", None, llm=llm) as plain:
        expected = plain.ask("generate", texts=[text], max_tokens=8)
    assert "Paris" in expected["texts"][0]
    blocks = expected["prompt"][0] // BLOCK
    assert blocks >= 3
    with start("smollm2", pool, llm=llm) as first:
        found = first.ask("generate", texts=[text], max_tokens=8)
        assert found["texts"] == expected["texts"]
        assert eventually(lambda: stored(pool) == blocks)
    with start("smollm2", pool, llm=llm, own_core=True) as second:
        found = second.ask("generate", texts=[text], max_tokens=8)
        assert found["tokens"] == expected["tokens"] and found["texts"] == expected["texts"]
        assert found["cached"] == [blocks * BLOCK]
