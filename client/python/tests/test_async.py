"""Calls that are waited for later: by threads, select and asyncio."""

from __future__ import annotations

import asyncio
import select
import threading
import time

import pytest
from conftest import CHUNK, keys_of, pattern

import cistern
from cistern import Code


@pytest.fixture
def stored(ns, buffer):
    """(namespace, keys, sources, targets): eight chunks in 16 parts each, the last one not put."""
    keys = ns.keys(keys_of(8))
    for i in range(8):
        buffer.view[i * CHUNK:(i + 1) * CHUNK] = pattern(i)
    pieces = buffer.spans(CHUNK, 32)
    assert ns.put(keys[:7], pieces[:7], part_bytes=4096, wait_visible=True).ok
    return ns, keys, pieces[:8], pieces[16:24]


def test_waiting_and_results(stored, buffer):
    ns, keys, sources, targets = stored
    op = ns.put_async(keys, sources, wait_visible=True)
    assert op.wait() and op.done()
    assert op.result().codes == [Code.PRESENT] * 7 + [Code.OK]
    with pytest.raises(cistern.CisternError):  # closed by its result
        op.wait()
    get = ns.get_async(keys, targets)
    readable, _, _ = select.select([get], [], [], 20)
    assert readable == [get] and get.done()
    assert get.result().ok
    assert buffer.view[16 * CHUNK:17 * CHUNK] == pattern(0)
    assert ns.lookup_async(keys).result().leading_run == 8


def test_one_epoll_for_many(stored):
    ns, keys, _, targets = stored
    poll, ops = select.epoll(), {}
    for i in range(7):
        op = ns.get_async(keys[i:i + 1], targets[i:i + 1])
        ops[op.fileno()] = op
        poll.register(op.fileno(), select.EPOLLIN | select.EPOLLONESHOT)
    while ops:
        events = poll.poll(20)
        assert events
        for fd, _ in events:
            assert ops.pop(fd).result().ok
    poll.close()


def test_layer_by_layer(stored, buffer):
    ns, keys, _, targets = stored
    with ns.get_async(keys, targets, order="part") as op:
        for part in range(16):
            assert op.wait_part(part) is False  # chunk 7 is missing
            for i in range(7):
                at = (16 + i) * CHUNK + part * 4096
                assert buffer.view[at:at + 4096] == pattern(i)[part * 4096:(part + 1) * 4096]
        assert op.missed() == [cistern.MissedChunk(7, Code.NOT_FOUND, 0)]
        assert op.result().codes == [Code.OK] * 7 + [Code.NOT_FOUND]
    assert ns.get_async(keys[:7], targets[:7], order="part").wait_part(3) is True


def test_asyncio(stored, buffer):
    ns, keys, sources, targets = stored

    async def run():
        assert (await ns.put_async(keys, sources, wait_visible=True)).ok
        found, got = await asyncio.gather(ns.lookup_async(keys), ns.get_async(keys, targets))
        assert found.leading_run == 8 and got.ok
        one_by_one = await asyncio.gather(
            *(ns.get_async(keys[i:i + 1], targets[i:i + 1]) for i in range(8) for _ in range(20)))
        assert all(result.ok for result in one_by_one)
        op = ns.get_async(keys, targets, order="part")
        for part in range(16):
            assert await op.part(part)
        assert (await op).ok

    asyncio.run(run())
    for i in range(8):
        assert buffer.view[(16 + i) * CHUNK:(17 + i) * CHUNK] == pattern(i)


def test_a_cancelled_task_leaves_its_memory_alone(stored, buffer):
    ns, keys, _, targets = stored

    async def run():
        for _ in range(20):
            async def get():
                return await ns.get_async(keys, targets)
            task = asyncio.create_task(get())
            await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            buffer.view[16 * CHUNK:24 * CHUNK] = bytes(8 * CHUNK)
            await asyncio.sleep(0.001)
            assert buffer.view[16 * CHUNK:24 * CHUNK] == bytes(8 * CHUNK)

    asyncio.run(run())


def test_dropped_ops_end(stored, buffer):
    ns, keys, _, targets = stored
    for _ in range(20):
        ns.get_async(keys, targets)  # nobody holds it
        buffer.view[16 * CHUNK:24 * CHUNK] = bytes(8 * CHUNK)
        time.sleep(0.001)
        assert buffer.view[16 * CHUNK:24 * CHUNK] == bytes(8 * CHUNK)
    op = ns.get_async(keys, targets)
    op.cancel()
    try:
        assert set(op.result().codes) <= {Code.OK, Code.CANCELLED, Code.NOT_FOUND}
    except cistern.CisternError as error:
        assert error.code == Code.CANCELLED


def test_an_ops_memory_is_held(client, ns):
    mine = bytearray(pattern(1))
    registered = client.register(mine)
    op = ns.put_async(["k"], [mine])
    registered.close()  # waits for the op
    with pytest.raises(BufferError):
        mine.clear()  # the op still holds it
    assert op.result().ok
    mine.clear()


def test_the_gil_is_free_during_calls(stored):
    ns, keys, _, targets = stored
    stop, turns = threading.Event(), [0]

    def count():
        while not stop.is_set():
            turns[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        client = cistern.connect("127.0.0.1:1", lazy=True, deadline=0.5)
        before = turns[0]
        with pytest.raises(cistern.CisternError):
            client.ping()  # waits for half a second
        assert turns[0] - before > 1000
        client.close()
    finally:
        stop.set()
        thread.join()


def test_many_threads(stored, buffer):
    ns, keys, _, _ = stored
    failures = []

    def work(number):
        try:
            target = [buffer.span((24 + number) * CHUNK, CHUNK)]
            for i in range(100):
                chunk = (i + number) % 7
                assert ns.get(keys[chunk:chunk + 1], target).ok
                assert buffer.view[(24 + number) * CHUNK:(25 + number) * CHUNK] == pattern(chunk)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
