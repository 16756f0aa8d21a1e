"""Every call, against a real pool."""

from __future__ import annotations

import time

import pytest
from conftest import CHUNK, keys_of, pattern

import cistern
from cistern import Code


def fill(buffer: cistern.Buffer, count: int) -> list[tuple[int, int]]:
    """The buffer's first `count` pieces, with their patterns."""
    for i in range(count):
        buffer.view[i * CHUNK:(i + 1) * CHUNK] = pattern(i)
    return buffer.spans(CHUNK, count)


def test_what_is_put_is_looked_up_and_got(ns, buffer):
    keys = ns.keys(keys_of(8))
    sources = fill(buffer, 8)
    assert ns.put(keys[:5], sources[:5], wait_visible=True).codes == [Code.OK] * 5
    assert ns.put(keys[:5], sources[:5]).codes == [Code.PRESENT] * 5
    found = ns.lookup(keys)
    assert (found.leading_run, found.present_count) == (5, 5)
    assert found.present == [True] * 5 + [False] * 3
    assert found.leased and 0 < found.lease <= 60 and len(found) == 8
    targets = [buffer.span((20 + i) * CHUNK, CHUNK) for i in range(8)]
    got = ns.get(keys, targets)
    assert got.codes == [Code.OK] * 5 + [Code.NOT_FOUND] * 3
    assert not got.ok and ns.get(keys[:5], targets[:5]).ok
    assert got[0] == cistern.ChunkResult(Code.OK, True, CHUNK) and got[-1].code == Code.NOT_FOUND
    for i in range(5):
        assert buffer.view[(20 + i) * CHUNK:(21 + i) * CHUNK] == pattern(i)
    assert buffer.view[25 * CHUNK:28 * CHUNK] == bytes(3 * CHUNK)


def test_keys_are_bytes_or_text_and_slices_are_runs(ns):
    both = ns.keys(["é", "é".encode(), bytearray(b"x")])
    assert both.ids[:16] == both.ids[16:32] != both.ids[32:]
    assert list(both) == ["é".encode(), "é".encode(), b"x"]
    assert both[1:].ids == both.ids[16:] and list(both[5:]) == [] and both[2] == b"x"
    with pytest.raises(ValueError, match="runs"):
        both[::2]
    for bad in ([b""], [b"x" * 4097]):
        with pytest.raises(cistern.CisternError, match="1 to 4096 bytes"):
            ns.keys(bad)


def test_an_empty_batch_is_no_error(ns):
    assert ns.put([], []).codes == [] and ns.get([], []).ok and ns.exists([]) == []
    assert len(ns.lookup([])) == 0 and ns.remove([]).codes == []


def test_shards_are_chunks_of_their_own(ns, buffer):
    sources = fill(buffer, 2)
    assert ns.put(["k"], [sources[0]], shard=0).ok and ns.put(["k"], [sources[1]], shard=1).ok
    target = buffer.span(10 * CHUNK, CHUNK)
    for shard in (0, 1):
        assert ns.get(["k"], [target], shard=shard).ok
        assert buffer.view[10 * CHUNK:11 * CHUNK] == pattern(shard)
    assert ns.lookup(["k"], shard_count=2).leading_run == 1
    assert ns.lookup(["k"], shard_count=3).leading_run == 0
    assert ns.get(["k"], [target], shard=2).codes == [Code.NOT_FOUND]


def test_ranges_parts_and_lengths(ns, buffer):
    (source,) = fill(buffer, 1)
    assert ns.put(["k"], [source], part_bytes=4096).ok
    at = 10 * CHUNK
    assert ns.get(["k"], [buffer.span(at, 5000)], ranges=[(3000, 5000)]).ok
    assert buffer.view[at:at + 5000] == pattern(0)[3000:8000]
    assert ns.get(["k"], [buffer.span(at, 8192)], parts=(2, 2))[0].verified
    assert buffer.view[at:at + 8192] == pattern(0)[8192:16384]
    too_long = buffer.span(at, CHUNK + 100)
    assert ns.get(["k"], [too_long])[0] == (Code.INVALID_ARGUMENT, False, CHUNK)
    assert ns.get(["k"], [too_long], any_length=True).nbytes == [CHUNK]


def test_layouts(client, ns, buffer):
    layers, units, piece = 4, 8, 4096
    bases = [buffer.address + layer * units * piece for layer in range(layers)]
    layout = client.register_layout(bases, unit_count=units, unit_stride_bytes=piece, piece_bytes=piece)
    for layer in range(layers):
        at = (layer * units + 1) * piece
        buffer.view[at:at + piece] = bytes([65 + layer]) * piece
    assert ns.put(["k"], [cistern.Unit(layout, 1)]).ok
    assert ns.get(["k"], [cistern.Unit(layout, 5)]).ok
    for layer in range(layers):
        at = (layer * units + 5) * piece
        assert buffer.view[at:at + piece] == bytes([65 + layer]) * piece
    client.unregister_layout(layout)
    assert ns.get(["k"], [cistern.Unit(layout, 5)]).codes == [Code.INVALID_ARGUMENT]


def test_a_ticket_serves_another_client(pool, ns, buffer):
    keys = ns.keys(keys_of(3))
    assert ns.put(keys, fill(buffer, 3), wait_visible=True).ok
    ticket = ns.lookup(keys).ticket()
    with cistern.connect(pool.master, token_file=pool.token_file, wire="tcp") as other:
        there = other.namespace(ns.name, "v1")
        found = there.adopt(ticket)
        assert found.leading_run == 3 and found.present == [True] * 3
        mine = bytearray(CHUNK)
        with other.register(mine):
            assert there.get(keys[2:], [mine]).ok
        assert mine == pattern(2)
        assert [wire.wire for wire in other.wires()] == ["tcp"] * len(other.wires()) != []
        assert ns.remove(keys).codes == [Code.FAILED_PRECONDITION] * 3
        found.release()
        assert ns.remove(keys).codes == [Code.OK] * 3
        for bad in (ticket[:-1], b"", b"x" * 100):
            with pytest.raises(cistern.CisternError) as error:
                there.adopt(bad)
            assert error.value.code == Code.INVALID_ARGUMENT


def test_leases(ns, buffer):
    keys = ns.keys(keys_of(3))
    sources = fill(buffer, 3)
    ns.put(keys[:1], sources[:1], wait_visible=True)
    ns.put(keys[2:], sources[2:], wait_visible=True)
    assert not ns.lookup(keys, lease=False).leased
    assert ns.exists(keys) == [True, False, True]
    sparse = ns.lookup(keys, sparse=True, lease_time=30)
    assert sparse.present_count == 2 and 0 < sparse.lease <= 30
    assert ns.remove(keys[2:]).codes == [Code.FAILED_PRECONDITION]
    assert ns.remove(keys[2:], force=True).codes == [Code.OK]
    sparse.release()
    sparse.close()
    with pytest.raises(cistern.CisternError, match="0"):
        sparse.ticket()


def test_mutable_namespaces_replace(client, buffer):
    ns = client.namespace("mutable", "v1", mutable=True, keep_keys=True)
    assert ns.mutable and ns.keep_keys
    sources = fill(buffer, 4)
    names = [b"user/a", b"user/b", b"other"]
    assert ns.put(names, sources[:3], wait_visible=True).ok
    assert ns.put([b"user/a"], [sources[3]], replace=True, wait_visible=True).codes == [Code.OK]
    target = buffer.span(10 * CHUNK, CHUNK)
    assert ns.get([b"user/a"], [target]).ok
    assert buffer.view[10 * CHUNK:11 * CHUNK] == pattern(3)
    listed = list(ns.list_keys(b"^user/", page=1))
    assert sorted(one.key for one in listed) == [b"user/a", b"user/b"]
    assert {(one.nbytes, one.shard) for one in listed} == {(CHUNK, 0)}
    assert ns.remove_matching(b"^user/")[:3] == (2, 2, 0)
    assert ns.remove_all() == 1 and list(ns.list_keys()) == []
    with pytest.raises(cistern.CisternError, match="pattern|paren"):
        list(ns.list_keys(b"("))


def test_expiry(ns, buffer):
    (source,) = fill(buffer, 1)
    assert ns.put(["k"], [source], expiry=time.time() + 3600).ok
    assert ns.put(["gone"], [source], expiry=1.0).codes != [Code.PRESENT]
    assert ns.exists(["gone"]) == [False]


def test_stats_and_pool(client, ns, buffer):
    (source,) = fill(buffer, 1)
    ns.put(["k"], [source])
    ns.get(["k"], [source])
    stats = client.stats()
    assert (stats["put_chunks"], stats["get_bytes"], stats["verify_failures"]) == (1, CHUNK, 0)
    assert len(client.pool_id) == 16 and any(client.pool_id)
    client.ping()
    assert cistern.version().count(".") == 2
