"""Both sides of vLLM's connector over a real pool, with an engine that is played: it has blocks, steps
and requests, and computes a block's bytes from its key. tests/engines has the real one."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
import threading
import time
from types import SimpleNamespace

import pytest
from test_trouble import stop

from cistern import dev
from cistern.vllm.link import PoolLink
from cistern.vllm.options import Options
from cistern.vllm.scheduler import EngineFacts, SchedulerSide
from cistern.vllm.worker import WorkerSide

TOKENS = 4  # of a block
PIECE = 8192  # bytes of a block in a layer
LAYERS = 3
BLOCKS = 64
LOG = logging.getLogger("test-vllm")


class Tensor:
    """A layer's cache: blocks of PIECE bytes, in memory of our own."""

    dtype = "uint8"

    def __init__(self):
        self.memory = (ctypes.c_char * (BLOCKS * PIECE))()
        self.shape = (BLOCKS, PIECE)

    def stride(self):
        return (PIECE, 1)

    def element_size(self):
        return 1

    def data_ptr(self):
        return ctypes.addressof(self.memory)


def computed(key, layer):
    """What the model computes for a block: its own bytes, for its key and the layer."""
    word = key[-8:].rjust(8, b"\0")
    return (word + bytes([layer])) * (PIECE // 9) + word[:PIECE % 9]


class Engine:
    """A scheduler and its workers, each with a connection of its own."""

    def __init__(self, pool, *, workers=1, identity="engine", loads=True, saves=True, wait=True,
                 **options):
        # Long ones: a busy machine is not what is tested.
        options = Options(**{"master_address": pool.master if pool else "127.0.0.1:1",
                             "pool_token_file": pool.token_file if pool else "", "load_deadline": 20.0,
                             "lookup_deadline": 20.0, "save_deadline": 20.0, **options})
        facts = EngineFacts(TOKENS, workers, loads, saves, False, "model", {"test": identity})
        self.scheduler = SchedulerSide(options, facts, PoolLink(options, LOG), LOG)
        self.workers, self.caches = [], []
        for shard in range(workers):
            worker = WorkerSide(options, shard, PoolLink(options, LOG), LOG)
            cache = {f"layer.{i}": Tensor() for i in range(LAYERS)}
            worker.register(cache, BLOCKS)
            self.workers.append(worker)
            self.caches.append(cache)
        self.scheduler.set_layouts([worker.handshake() for worker in self.workers])
        self.sync = options.offload_mode == "sync"
        if pool and wait:
            assert self.scheduler._link.wait(20) is not None
        self.free = list(range(1, BLOCKS))
        self.heard = {}

    def close(self):
        _finished.clear()
        for side in [*self.workers, self.scheduler]:
            side.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def bytes_of(self, block, worker=0):
        return [tensor.memory[block * PIECE:(block + 1) * PIECE]
                for tensor in self.caches[worker].values()]

    def compute(self, request, block, index):
        for cache in self.caches:
            for layer, tensor in enumerate(cache.values()):
                ctypes.memmove(tensor.data_ptr() + block * PIECE,
                               computed(request.block_hashes[index], layer), PIECE)

    def step(self, scheduled=(), new=(), preempted=(), finished=frozenset(), during=None):
        """`scheduled`: (request, tokens before, tokens computed now). Answers what the workers said."""
        output = SimpleNamespace(
            total_num_scheduled_tokens=sum(count for _, _, count in scheduled),
            num_scheduled_tokens={request.request_id: count for request, _, count in scheduled},
            scheduled_new_reqs=[SimpleNamespace(req_id=one.request_id, num_computed_tokens=before)
                                for one, before, _ in scheduled if one in new],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[one.request_id for one, _, _ in scheduled if one not in new],
                num_computed_tokens=[before for one, before, _ in scheduled if one not in new]),
            scheduled_spec_decode_tokens={}, preempted_req_ids={one.request_id for one in preempted},
            kv_connector_block_state=SimpleNamespace(get_block_ids=lambda request_id: next(
                ([one.blocks] for one, _, _ in scheduled if one.request_id == request_id), None)))
        work = self.scheduler.work(output)
        for worker in self.workers:
            worker.reclaim(work)
            worker.begin(work)
            worker.start()
        if during:
            during()
        if self.sync:
            for worker in self.workers:
                for layer in range(LAYERS):
                    worker.wait_layer(f"layer.{layer}")
        for request, before, count in scheduled:
            for index in range(before // TOKENS, (before + count) // TOKENS):
                self.compute(request, request.blocks[index], index)
            request.num_computed_tokens = before + count
        said = SimpleNamespace(sent=set(), received=set(), bad=set(), report=None)
        for worker in self.workers:
            worker.finish_forward()
            sent, received = worker.poll()
            said.sent |= self.from_all("sent", sent)
            said.received |= self.from_all("received", received)
            said.bad |= worker.take_bad_blocks()
            report = worker.report()
            said.report = report if said.report is None else said.report.merge(report)
        assert not (self.sync and said.received)  # the engine would not have it
        self.scheduler.ended(said.report, said.bad, said.received, set(), said.sent)
        return said

    def from_all(self, what, request_ids):
        """Those of which the last worker has spoken now."""
        for one in request_ids:
            self.heard[what, one] = self.heard.get((what, one), 0) + 1
        return {one for one in request_ids if self.heard[what, one] % len(self.workers) == 0}

    def ask(self, request, have=0):
        """As the engine does, again and again until there is an answer."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            answer = self.scheduler.matched(request, have)
            if answer[0] is not None:
                return answer[0]
        raise AssertionError("no answer")

    def arrive(self, name, prompt, tag=b"", output=1):
        """A request whose chain is `prompt`: a word for each block; one token more."""
        hashes, chain = [], b""
        for word in prompt:
            chain += f"/{word}".encode()
            hashes.append(b"hash:" + chain[-24:])
        request = SimpleNamespace(
            request_id=name, num_prompt_tokens=TOKENS * len(prompt) + output,
            num_tokens=TOKENS * len(prompt) + output, num_computed_tokens=0, block_hashes=hashes, tag=tag,
            blocks=[self.free.pop(0) for _ in range(len(prompt) + 1)])
        self.scheduler.add(request, tag)
        return request

    def load(self, request, tokens):
        """Until the request is loaded; the blocks that did not come."""
        self.scheduler.allocated(request, request.blocks, tokens)
        bad, end = set(), time.monotonic() + 20
        while time.monotonic() < end:
            said = self.step()
            bad |= said.bad
            if request.request_id in said.received:
                return bad
        raise AssertionError("never loaded")

    def finish(self, request):
        """The request ends; answers whether its blocks were kept, and waits until they are not."""
        keys = [request.tag + one for one in request.block_hashes]
        kept = self.scheduler.finished(request, request.blocks)
        if kept:
            _finished.append((self.scheduler._link.namespace, keys, len(self.workers)))
        assert self.scheduler.frees_blocks_soon or not kept
        end = time.monotonic() + 20
        while kept and time.monotonic() < end:
            if request.request_id in self.step(finished={request.request_id}).sent:
                return True
        assert not kept, "never closed"
        return kept

    def run(self, name, prompt, tag=b""):
        """A whole request; answers how many tokens came from the pool."""
        request = self.arrive(name, prompt, tag)
        tokens = self.ask(request)
        if tokens and not self.sync:
            bad = self.load(request, tokens)
            assert not bad, bad
        else:
            self.scheduler.allocated(request, request.blocks, tokens)
        self.step([(request, tokens, request.num_tokens - tokens)], new=[request])
        assert self.right(request)
        self.finish(request)
        return tokens

    def right(self, request):
        """Every full block has the bytes that computing gives."""
        return all(self.bytes_of(request.blocks[i], worker)
                   == [computed(key, layer) for layer in range(LAYERS)]
                   for i, key in enumerate(request.block_hashes)
                   for worker in range(len(self.workers)))

    def saved(self, worker=0):
        return self.workers[worker].counts.data.get("saved_chunks", 0)

    def count(self, name, worker=0):
        return self.workers[worker].counts.data.get(name, 0)


PROMPT = ["once", "upon", "a", "time"]


_finished = []  # (namespace, keys, shards) of requests whose saves are done


def seen(namespace, keys, shards=1):
    """Puts are seen by others' lookups some milliseconds after they were acknowledged."""
    end = time.monotonic() + 20
    while not all(namespace.exists(keys, shard_count=shards)):
        assert time.monotonic() < end, "never seen"
        time.sleep(0.01)


def visible():
    """What was saved so far is."""
    while _finished:
        seen(*_finished.pop())


@pytest.fixture
def identity(request):
    return request.node.name  # a namespace of the test's own


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_what_one_engine_computed_another_one_loads(pool, identity, mode):
    with Engine(pool, identity=identity, offload_mode=mode) as first:
        assert first.run("a", PROMPT) == 0
        assert first.saved() == 4
        visible()
        # Nothing is stored twice.
        assert first.run("b", PROMPT) == 16
        assert first.saved() == 4
    with Engine(pool, identity=identity, offload_mode=mode) as second:
        assert second.run("c", PROMPT) == 16
        assert second.count("loaded_chunks") == second.count("missed_chunks") + 4
        assert second.count("verified_bytes") == 4 * LAYERS * PIECE
        # A prompt that goes on differently shares the front.
        assert second.run("d", [*PROMPT[:2], "the", "end"]) == 8
        assert second.scheduler.counts.data["offered_tokens"] == 24


def test_a_step_that_waits_for_its_load_keeps_a_token_to_compute(pool, identity):
    with Engine(pool, identity=identity, offload_mode="sync") as engine:
        engine.run("a", PROMPT)
        visible()
        request = engine.arrive("b", PROMPT, output=0)
        assert engine.ask(request) == 12
    with Engine(pool, identity=identity) as engine:
        request = engine.arrive("b", PROMPT, output=0)
        assert engine.ask(request) == 16


def test_every_worker_has_its_own_share(pool, identity):
    with Engine(pool, identity=identity, workers=2) as first:
        first.run("a", PROMPT)
        assert [first.saved(0), first.saved(1)] == [4, 4]
        visible()
    with Engine(pool, identity=identity, workers=2) as second:
        assert second.run("b", PROMPT) == 16
    # An engine with another number of workers shares nothing with these.
    with Engine(pool, identity=identity, workers=1) as third:
        assert third.run("c", PROMPT) == 0


def test_a_block_counts_only_if_every_share_is_there(pool, identity):
    with Engine(pool, identity=identity, workers=2) as engine:
        request = engine.arrive("a", PROMPT)
        engine.scheduler.allocated(request, request.blocks, 0)
        engine.step([(request, 0, 17)], new=[request])
        save = engine.scheduler.planner.plan_save(
            engine.scheduler.planner.state("a"), request.block_hashes, request.blocks)
        engine.workers[0]._start_save(save)
        end = time.monotonic() + 20
        while engine.workers[0]._saving and time.monotonic() < end:
            engine.step()
        seen(engine.scheduler._link.namespace, request.block_hashes)
        assert engine.ask(engine.arrive("b", PROMPT)) == 0


def test_what_must_not_be_shared_is_not(pool, identity):
    with Engine(pool, identity=identity) as one:
        one.run("a", PROMPT)
        visible()
        assert one.run("b", PROMPT, tag=b"lora") == 0
        visible()
        assert one.run("c", PROMPT, tag=b"lora") == 16
    with Engine(pool, identity=identity + "2") as other:
        assert other.run("d", PROMPT) == 0


@pytest.mark.parametrize("loads, saves, stored, found", [
    (True, True, 4, 16), (False, True, 4, 0), (True, False, 0, 0)])
def test_roles(pool, identity, loads, saves, stored, found):
    with Engine(pool, identity=identity, loads=loads, saves=saves) as engine:
        assert engine.run("a", PROMPT) == 0
        assert engine.saved() == stored
        visible()
        assert engine.run("b", PROMPT) == found
        if not loads:
            assert "lookups" not in engine.scheduler.counts.data


def test_short_prompts_are_not_stored(pool, identity):
    with Engine(pool, identity=identity, store_threshold=17) as engine:
        engine.run("a", PROMPT[:3])
        assert engine.saved() == 0
        engine.run("b", PROMPT)
        assert engine.saved() == 4


def test_without_prefetching_the_first_question_asks(pool, identity):
    with Engine(pool, identity=identity, prefetch_on_hit=False) as engine:
        engine.run("a", PROMPT)
        visible()
        request = engine.arrive("b", PROMPT)
        assert engine.scheduler.counts.data["lookups"] == 1
        assert engine.ask(request) == 16
        assert engine.scheduler.counts.data["lookups"] == 2


def test_a_request_that_must_compute_its_prompt_is_let(pool, identity):
    with Engine(pool, identity=identity) as engine:
        engine.run("a", PROMPT)
        visible()
        request = engine.arrive("b", PROMPT)
        request.skip_reading_prefix_cache = True
        assert engine.ask(request) == 0


def test_a_chunk_that_is_gone_is_reported_and_not_promised_again(pool, identity):
    with Engine(pool, identity=identity) as engine:
        engine.run("a", PROMPT)
        visible()
        namespace = engine.scheduler._link.namespace
        request = engine.arrive("b", PROMPT)
        assert engine.ask(request) == 16
        key = engine.scheduler._chain(request, engine.scheduler.planner.state("b"))[2]
        assert namespace.remove([key], force=True).ok
        assert engine.load(request, 16) == {request.blocks[2]}
        assert engine.ask(request) == 8
        assert engine.load(request, 8) == set()
        # It is computed, and stored anew.
        engine.step([(request, 8, 9)], new=[request])
        engine.finish(request)
        visible()
        assert engine.run("c", PROMPT) == 16


def test_sync_loads_that_fail_store_nothing_that_was_computed_behind_them(pool, identity):
    with Engine(pool, identity=identity, offload_mode="sync") as engine:
        engine.run("a", PROMPT[:2])
        visible()
        namespace = engine.scheduler._link.namespace
        request = engine.arrive("b", PROMPT)
        assert engine.ask(request) == 8
        keys = engine.scheduler._chain(request, engine.scheduler.planner.state("b"))
        assert namespace.remove([keys[0]], force=True).ok
        engine.scheduler.allocated(request, request.blocks, 8)
        said = engine.step([(request, 8, 9)], new=[request])
        assert said.bad == {request.blocks[0]}
        # Were these two stored now, they would be wrong for everybody.
        engine.step([(request, 0, 4)])
        engine.step()  # whatever was to be saved is
        while engine.workers[0]._saving:
            engine.step()
        assert namespace.exists(keys) == [False, True, False, False]
        engine.step([(request, 4, 13)])
        engine.step([(request, 17, 1)])
        engine.finish(request)
        visible()
        assert namespace.exists(keys) == [True] * 4


def test_preempted_blocks_are_not_read_any_more(pool, identity):
    with Engine(pool, identity=identity) as engine:
        request = engine.arrive("a", PROMPT)
        assert engine.ask(request) == 0
        engine.scheduler.allocated(request, request.blocks, 0)
        engine.step([(request, 0, 16)], new=[request])
        engine.step([(request, 16, 1)])  # starts the saves
        engine.step(preempted=[request])
        assert not engine.workers[0]._saving
        for block in request.blocks:  # somebody else's now
            for tensor in engine.caches[0].values():
                ctypes.memset(tensor.data_ptr() + block * PIECE, 7, PIECE)
        other = engine.arrive("b", PROMPT)
        tokens = engine.ask(other)
        assert engine.load(other, tokens) == set() if tokens else True
        for i in range(tokens // TOKENS):
            assert engine.bytes_of(other.blocks[i])[0] == computed(other.block_hashes[i], 0)


def test_no_pool_costs_nothing_but_the_pool(identity):
    started = time.monotonic()
    with Engine(None, identity=identity) as engine:
        for i in range(20):
            assert engine.run(f"r{i}", [*PROMPT, i][:3 + i % 2]) == 0
            engine.free = list(range(1, BLOCKS))
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_store_that_goes_away_during_a_load(identity, mode, how):
    with dev.running(128 << 20) as own:
        with Engine(own, identity=identity, offload_mode=mode, load_deadline=1.0,
                    save_deadline=0.5) as engine:
            engine.run("a", PROMPT)
            visible()
            request = engine.arrive("b", PROMPT)
            tokens = engine.ask(request)
            assert tokens == 16
            store = own.daemons[1][1].pid

            def go_away():
                os.kill(store, signal.SIGKILL)

            if how == "stopped":
                stop(store)
            started = time.monotonic()
            engine.scheduler.allocated(request, request.blocks, tokens)
            bad = set()
            if mode == "sync":
                bad = engine.step([(request, 16, 1)], new=[request],
                                  during=go_away if how == "killed" else None).bad
            else:
                if how == "killed":
                    go_away()
                received = set()
                while "b" not in received and time.monotonic() - started < 20:
                    said = engine.step()
                    received |= said.received
                    bad |= said.bad
                assert "b" in received
            assert time.monotonic() - started < 10
            # What is not reported bad is right: with a kill, some may have come before.
            for i, block in enumerate(request.blocks[:4]):
                if block not in bad:
                    assert engine.bytes_of(block)[0] == computed(request.block_hashes[i], 0)
            if how == "stopped":
                assert bad == set(request.blocks[:4])
                assert engine.ask(request) == 0
                os.kill(store, signal.SIGCONT)


def test_a_master_that_does_not_answer_is_asked_less_and_less(identity):
    with dev.running(128 << 20) as own:
        with Engine(own, identity=identity, lookup_deadline=0.1) as engine:
            engine.run("a", PROMPT)
            master = own.daemons[0][1].pid
            stop(master)
            try:
                for i in range(10):
                    request = engine.arrive(f"r{i}", PROMPT)
                    assert engine.ask(request) == 0
                    engine.scheduler.finished(request, request.blocks)
                    engine.free = list(range(1, BLOCKS))
                assert engine.scheduler.counts.data["lookup_failures"] < 5
            finally:
                os.kill(master, signal.SIGCONT)


@contextlib.contextmanager
def forwarding(port, target):
    """Until the end of the block, what dials `port` reaches `target`."""
    host, target_port = target.rsplit(":", 1)

    def pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((host, int(target_port)))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", port)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def test_a_pool_that_comes_later_is_used(pool, identity):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    # The engine starts while there is nothing at that address.
    later = SimpleNamespace(master=f"127.0.0.1:{port}", token_file=pool.token_file)
    with Engine(later, identity=identity, wait=False) as engine:
        assert engine.run("a", PROMPT) == 0
        assert engine.saved() == 0
        with forwarding(port, pool.master):
            assert engine.scheduler._link.wait(30) is not None
            assert engine.run("b", PROMPT) == 0
            visible()
            assert engine.run("c", PROMPT) == 16
