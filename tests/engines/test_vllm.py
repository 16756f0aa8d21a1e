"""Real vLLM over a real pool: equal tokens, counted hits, and what happens when something is wrong.

Beside the tests of equality stands one in which stored bytes are harmed and nobody looks: a test that
cannot fail shows nothing. Starting an engine is what takes time, so that many tests share one; each has
prompts of its own.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import segment
from conftest import BLOCK, Engine, eventually, make_engine, stats, stop, store_of, stored

from cistern import dev

PROMPT_TOKENS = 1000
BLOCKS = PROMPT_TOKENS // BLOCK  # full ones: 7
HIT = BLOCKS * BLOCK
TOKENS = 8  # generated
PROMPTS = 24


def prompt(number: int) -> list[int]:
    numbers = random.Random(number)
    return [numbers.randrange(3, 1024) for _ in range(PROMPT_TOKENS)]


@pytest.fixture(scope="module")
def expected(models: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What the model answers to each prompt without a pool."""
    with make_engine(models / "tiny", None, tmp_path_factory.mktemp("plain")) as plain:
        print(plain.ask("versions")["versions"])
        answers = plain.generate(*(prompt(i) for i in range(PROMPTS)), max_tokens=TOKENS)["tokens"]
    assert len({tuple(one) for one in answers}) == PROMPTS
    found: list[list[int]] = answers
    return found


@pytest.fixture(scope="module")
def pool() -> Iterator[dev.DevPool]:
    with dev.running(512 << 20) as running:
        yield running


class Shared:
    """An engine, and the next prompt that nobody has asked it about."""

    def __init__(self, engine: Engine, mode: str, first: int) -> None:
        self.engine, self.mode = engine, mode
        self._next = first

    def number(self) -> int:
        self._next += 1
        return self._next - 1


@pytest.fixture(scope="module", params=["async", "sync"])
def shared(request: pytest.FixtureRequest, models: Path, pool: dev.DevPool,
           tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    mode = request.param
    with make_engine(models / "tiny", pool, tmp_path_factory.mktemp(mode), offload_mode=mode,
                     load_deadline=3.0, save_deadline=3.0) as engine:
        yield Shared(engine, mode, 1 if mode == "async" else 12)


def counted_hits(engine: Engine) -> tuple[float, float]:
    """Tokens that came from outside, as the engine counts them in two places."""
    found = engine.metrics()
    return (found.get("vllm:external_prefix_cache_hits", 0),
            found.get("vllm:prompt_tokens_by_source[external_kv_transfer]", 0))


def store_prompt(engine: Engine, pool: dev.DevPool, number: int) -> list[segment.StoredChunk]:
    """Has it computed and stored; its chunks, in order."""
    before = {one.version for one in segment.chunks(pool.segment_dir)}
    found = engine.again(prompt(number), max_tokens=TOKENS)
    assert found["cached"] == [0]

    def new() -> list[segment.StoredChunk] | None:
        chunks = [one for one in segment.chunks(pool.segment_dir) if one.version not in before]
        return chunks if len(chunks) == BLOCKS else None

    chunks = eventually(new)
    assert chunks, "not stored"
    time.sleep(0.1)  # and the master has heard of it
    return list(chunks)


def test_another_process_loads_what_the_first_computed(shared, pool, expected):
    engine = shared.engine
    if shared.mode == "async":  # the first
        assert engine.generate(prompt(0), max_tokens=TOKENS)["tokens"] == [expected[0]]
        assert eventually(lambda: stored(pool) == BLOCKS)
        assert counted_hits(engine) == (0, 0)
        return
    gets = stats(pool)["stores"][0]["get_hits"]
    found = engine.generate(prompt(0), max_tokens=TOKENS)
    assert found["tokens"] == [expected[0]] and found["cached"] == [HIT]
    assert counted_hits(engine) == (HIT, HIT)
    assert engine.metrics()["vllm:cistern_verified_bytes"] == HIT * 4096
    assert eventually(lambda: stats(pool)["stores"][0]["get_hits"] == gets + BLOCKS)


def test_it_loads_again_what_it_has_forgotten_itself(shared, pool, expected):
    engine, number = shared.engine, shared.number()
    store_prompt(engine, pool, number)
    before, (hits, _) = stored(pool), counted_hits(engine)
    found = engine.again(prompt(number), max_tokens=TOKENS)
    assert found["tokens"] == [expected[number]] and found["cached"] == [HIT]
    assert counted_hits(engine)[0] == hits + HIT
    # A prompt that goes on otherwise after 3 blocks loads those; its end is stored, once.
    other = prompt(number)[:3 * BLOCK] + prompt(shared.number())[3 * BLOCK:]
    assert engine.again(other, max_tokens=TOKENS)["cached"] == [3 * BLOCK]
    assert eventually(lambda: stored(pool) == before + 4)
    # What the engine still has is not loaded.
    hits, _ = counted_hits(engine)
    assert engine.generate(other, max_tokens=TOKENS)["cached"] == [HIT]
    assert counted_hits(engine)[0] == hits
    assert stats(pool)["namespaces"][0]["name"].startswith("vllm/tiny-")


@pytest.mark.parametrize("bad", [0, 3, BLOCKS - 1])
def test_a_harmed_block_is_computed(shared, pool, expected, bad):
    """The first one frees the request in the engine, which then asks again: it must not loop."""
    engine, number = shared.engine, shared.number()
    segment.harm(store_prompt(engine, pool, number)[bad])
    misses = engine.metrics().get("vllm:cistern_missed_chunks", 0)
    assert engine.again(prompt(number), max_tokens=TOKENS)["tokens"] == [expected[number]]
    assert engine.metrics()["vllm:cistern_missed_chunks"] > misses
    assert engine.said("Recovered from KV load failure")

    # The harmed one was dropped, computed, and stored anew: now all of them come.
    def whole() -> bool:
        found: dict[str, Any] = engine.again(prompt(number), max_tokens=TOKENS)
        assert found["tokens"] == [expected[number]]
        return bool(found["cached"] == [HIT])

    before = engine.metrics()["vllm:cistern_missed_chunks"]
    assert eventually(whole)
    assert engine.metrics()["vllm:cistern_missed_chunks"] == before


def test_requests_at_once(shared, pool, expected):
    """Some that hit, some that do not, two that are the same, in one batch."""
    engine = shared.engine
    numbers = [shared.number() for _ in range(3)]
    store_prompt(engine, pool, numbers[0])
    before = stored(pool)
    numbers += numbers[:2]
    for _ in range(2):
        found = engine.again(*(prompt(number) for number in numbers), max_tokens=TOKENS)
        assert found["tokens"] == [expected[number] for number in numbers]
        assert eventually(lambda: stored(pool) == before + 2 * BLOCKS)


def test_salts_are_kept_apart(shared, pool, expected):
    engine, number = shared.engine, shared.number()
    store_prompt(engine, pool, number)
    before = stored(pool)
    salted = engine.again(prompt(number), max_tokens=TOKENS, salt="tenant-a")
    assert salted["cached"] == [0] and salted["tokens"] == [expected[number]]
    assert eventually(lambda: stored(pool) == before + BLOCKS)
    for salt, cached in (("tenant-a", HIT), ("tenant-b", 0), (None, HIT)):
        assert engine.again(prompt(number), max_tokens=TOKENS, salt=salt)["cached"] == [cached]


def test_a_store_that_stands_still_dies_and_comes_back(shared, pool, expected):
    engine, number = shared.engine, shared.number()
    store_prompt(engine, pool, number)
    store = store_of(pool)
    # It stands still: the load ends at its deadline.
    assert engine.ask("reset")["reset"]
    stop(store.pid)
    started = time.monotonic()
    assert engine.generate(prompt(number), max_tokens=TOKENS)["tokens"] == [expected[number]]
    assert time.monotonic() - started < 90
    os.kill(store.pid, signal.SIGCONT)
    assert eventually(lambda: stats(pool)["stores"][0]["state"] == "serving")
    # It dies while the load waits for it.
    assert engine.ask("reset")["reset"]
    stop(store.pid)
    engine.tell("generate", prompts=[prompt(number)], max_tokens=TOKENS)
    time.sleep(0.5)
    store.kill()
    store.wait()
    assert engine.answer()["tokens"] == [expected[number]]
    # Nobody is there any more, and the engine goes on.
    assert engine.again(prompt(number), max_tokens=TOKENS)["tokens"] == [expected[number]]
    # Another process finds the chunks in the memory that the first one left.
    pool.daemons[1] = ("store-0", dev._launch(pool, "cistern-store", "store-0"))
    assert eventually(lambda: stats(pool)["stores"][0]["state"] == "serving")

    def whole() -> bool:
        found: dict[str, Any] = engine.again(prompt(number), max_tokens=TOKENS)
        assert found["tokens"] == [expected[number]]
        return bool(found["cached"] == [HIT])

    assert eventually(whole, 60)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_the_policy_that_fails_requests(start, pool, expected, mode):
    number = PROMPTS - 2 if mode == "async" else PROMPTS - 1
    with start("tiny", pool, policy="fail", offload_mode=mode) as engine:
        segment.harm(store_prompt(engine, pool, number)[2])
        before = stored(pool)
        found = engine.again(prompt(number), max_tokens=TOKENS)
        assert found["finish"] == ["error"] and found["tokens"] == [[]]
        assert eventually(lambda: stored(pool) == before - 1)  # the bad one is dropped
        # The next one finds what is good of it, and is answered rightly.
        assert engine.again(prompt(number), max_tokens=TOKENS)["tokens"] == [expected[number]]


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_harmed_bytes_change_the_answer_where_nobody_looks(start, expected, mode):
    """The negative control: verification is off."""
    with dev.running(64 << 20) as unwatched:
        with start("tiny", unwatched, offload_mode=mode, verify="off") as engine:
            chunks = store_prompt(engine, unwatched, 1)
            found = engine.again(prompt(1), max_tokens=TOKENS)
            assert found["tokens"] == [expected[1]] and found["cached"] == [HIT]
            for chunk in chunks:
                segment.harm(chunk)
            found = engine.again(prompt(1), max_tokens=TOKENS)
            assert found["cached"] == [HIT] and found["tokens"] != [expected[1]]
            # What is computed is right again.
            assert engine.again(prompt(2), max_tokens=TOKENS)["tokens"] == [expected[2]]


def test_no_pool_at_all(start, pool, expected):
    nowhere = dev.DevPool(pool.dir, pool.segment_dir, master="127.0.0.1:1")
    with start("tiny", nowhere) as engine:
        for number in (1, 2):
            found = engine.generate(prompt(number), max_tokens=TOKENS)
            assert found["tokens"] == [expected[number]] and found["cached"] == [0]
        assert engine.said("no pool at 127.0.0.1:1")


def test_another_model_of_the_same_name_shares_nothing(start, expected):
    with dev.running(64 << 20) as own:
        with start("tiny", own) as one:
            store_prompt(one, own, 1)
        with start("tiny-2", own, model_name="tiny") as other:
            found = other.generate(prompt(1), max_tokens=TOKENS)
            assert found["cached"] == [0] and found["tokens"] != [expected[1]]
            assert eventually(lambda: stored(own) == 2 * BLOCKS)
        names = {one["name"] for one in stats(own)["namespaces"]}
    assert len(names) == 2 and all(name.startswith("vllm/tiny-") for name in names)


def test_part_of_it_is_evicted(start, expected):
    """Other prompts fill a small pool; suffixes leave before their prefixes."""
    with dev.running(64 << 20) as small:
        with start("tiny", small) as engine:
            store_prompt(engine, small, 1)
            engine.generate(*(prompt(number) for number in range(100, 118)), max_tokens=2)
            assert eventually(lambda: stats(small)["pool"]["evictions_by_cause"])
            for number in (1, 2):
                found = engine.again(prompt(number), max_tokens=TOKENS)
                assert found["tokens"] == [expected[number]]


def test_producer_and_consumer(start, expected):
    with dev.running(64 << 20) as own:
        with start("tiny", own, role="kv_producer") as producer:
            store_prompt(producer, own, 1)
            assert producer.again(prompt(1), max_tokens=2)["cached"] == [0]
        with start("tiny", own, role="kv_consumer") as consumer:
            found = consumer.generate(prompt(1), max_tokens=TOKENS)
            assert found["cached"] == [HIT] and found["tokens"] == [expected[1]]
            assert consumer.generate(prompt(2), max_tokens=TOKENS)["tokens"] == [expected[2]]
            assert consumer.again(prompt(2), max_tokens=TOKENS)["cached"] == [0]
        assert stored(own) == BLOCKS


def test_a_real_language_model(start, pool):
    """Real text and weights; the engine's core in a process of its own, as servers have it."""
    text = ("The following is a list of facts about the countries of Europe. " * 40
            + "The capital of France is")
    llm = {"dtype": "bfloat16", "skip_tokenizer_init": False}
    with start("smollm2", None, llm=llm) as plain:
        expected = plain.ask("generate", texts=[text], max_tokens=8)
    assert "Paris" in expected["texts"][0]
    blocks = expected["prompt"][0] // BLOCK
    assert blocks >= 3
    before = stored(pool)
    with start("smollm2", pool, llm=llm, own_core=True) as engine:
        found = engine.ask("generate", texts=[text], max_tokens=8)
        assert found["texts"] == expected["texts"] and found["cached"] == [0]
        assert eventually(lambda: stored(pool) == before + blocks)
        assert eventually(lambda: engine.ask("reset")["reset"])
        found = engine.ask("generate", texts=[text], max_tokens=8)
        assert found["tokens"] == expected["tokens"] and found["texts"] == expected["texts"]
        assert found["cached"] == [blocks * BLOCK]
