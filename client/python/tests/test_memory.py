"""What can be a chunk's memory, and what cannot."""

from __future__ import annotations

import gc

import pytest
from conftest import CHUNK, pattern

import cistern
from cistern import Code


def round_trip(client, ns, source, target):
    with client.register(source, write=False), client.register(target):
        assert ns.put(["k"], [source]).ok
        assert ns.get(["k"], [target]).ok


def test_bytes_bytearrays_and_memoryviews(client, ns):
    target = bytearray(CHUNK)
    round_trip(client, ns, pattern(1), memoryview(target))
    assert target == pattern(1)


def test_numpy_arrays(client, ns):
    np = pytest.importorskip("numpy")
    source = np.frombuffer(pattern(1), dtype=np.float16).reshape(16, -1)
    target = np.zeros((2, CHUNK // 8), dtype=np.int32)
    round_trip(client, ns, source, target)
    assert target.tobytes() == pattern(1)
    with pytest.raises((BufferError, ValueError)):
        client.register(np.zeros((64, 64))[:, ::2])
    read_only = np.zeros(CHUNK, dtype=np.uint8)
    read_only.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        client.register(read_only)


def test_numpy_sees_allocated_memory(client, ns):
    np = pytest.importorskip("numpy")
    buffer = client.allocate(2 * CHUNK)
    array = np.frombuffer(buffer.view, dtype=np.uint8)
    array[:CHUNK] = np.frombuffer(pattern(2), dtype=np.uint8)
    assert ns.put(["k"], [array[:CHUNK]]).ok and ns.get(["k"], [array[CHUNK:]]).ok
    assert array[CHUNK:].tobytes() == pattern(2)


def test_torch_tensors(client, ns):
    torch = pytest.importorskip("torch")
    source = torch.arange(CHUNK // 2, dtype=torch.int32).to(torch.bfloat16)
    target = torch.zeros(CHUNK // 4, 2, dtype=torch.bfloat16).reshape(-1)[:CHUNK // 2]
    round_trip(client, ns, source, target)
    assert torch.equal(source, target)
    with pytest.raises(ValueError, match="contiguous"):
        client.register(torch.zeros(64, 64)[:, ::2])


def test_pieces_of_several_kinds_make_a_chunk(client, ns, buffer):
    mine = bytearray(pattern(3)[:10_000])
    buffer.view[:CHUNK - 10_000] = pattern(3)[10_000:]
    with client.register(mine):
        assert ns.put(["k"], [[mine, buffer.span(0, CHUNK - 10_000)]]).ok
    assert ns.get(["k"], [[buffer.span(2 * CHUNK, 100), buffer.span(4 * CHUNK, CHUNK - 100)]]).ok
    assert buffer.view[2 * CHUNK:2 * CHUNK + 100] == pattern(3)[:100]
    assert buffer.view[4 * CHUNK:5 * CHUNK - 100] == pattern(3)[100:]


def test_both_ways_of_packing_give_the_same(client, ns, buffer):
    from cistern import batch
    keys, spans = ns.keys([b"a", b"bc", b"def"]), buffer.spans(CHUNK, 3)
    for shard in (0, 7):
        quick = batch.put_items(keys, spans, shard, False)
        slow = batch.put_items(keys, [[span] for span in spans], shard, False)
        apart = [bytearray(items._packed) for items in (quick, slow)]
        for packed in apart:  # where the spans are differs
            for i in range(3):
                packed[64 * i + 24:64 * i + 32] = bytes(8)
        assert apart[0] == apart[1] and quick._spans == slow._spans and len(apart[0]) == 192
    for more in ((True, None), (False, (2, 5)), (False, None)):
        quick = batch.get_items(keys, spans, 9, more[0], None, more[1])
        slow = batch.get_items(keys, [[span] for span in spans], 9, more[0], None, more[1])
        apart = [bytearray(items._packed) for items in (quick, slow)]
        for packed in apart:
            for i in range(3):
                packed[72 * i + 24:72 * i + 32] = bytes(8)
        assert apart[0] == apart[1] and quick._spans == slow._spans and len(apart[0]) == 216
        base = quick._spans.buffer_info()[0]
        assert [int.from_bytes(quick._packed[72 * i + 24:72 * i + 32], "little") - base
                for i in range(3)] == [0, 16, 32]


def test_memory_that_is_not_registered_is_refused(client, ns):
    stranger = bytearray(CHUNK)
    result = ns.put(["k"], [stranger])
    assert result.codes == [Code.INVALID_ARGUMENT] and "regist" in result.message
    buffer = client.register(stranger)
    buffer.close()
    buffer.close()
    assert ns.get(["k"], [stranger]).codes == [Code.INVALID_ARGUMENT]


def test_a_registered_bytearray_cannot_be_resized(client):
    mine = bytearray(CHUNK)
    buffer = client.register(mine)
    with pytest.raises(BufferError):
        mine.extend(b"x")
    buffer.close()
    mine.extend(b"x")


def test_allocated_memory_lives_as_long_as_its_views(client, ns):
    buffer = client.allocate(CHUNK)
    view = buffer.view
    buffer.close()
    del buffer
    gc.collect()
    view[:] = pattern(4)  # would crash if it were unmapped
    assert view == pattern(4)
    client.close()
    assert view == pattern(4)


def test_wrong_shapes_of_arguments(client, ns, buffer):
    spans = buffer.spans(CHUNK, 2)
    with pytest.raises(ValueError, match="1 keys"):
        ns.put(["k"], spans)
    with pytest.raises(ValueError):
        ns.get(["k"], [(1, 2, 3)])
    with pytest.raises(TypeError):
        ns.put(["k"], [None])
    with pytest.raises(TypeError):
        ns.put(["k"], [("address", 5)])
    with pytest.raises(OverflowError):
        ns.put(["k"], [(-1, 5)])
    assert ns.put(["k"], [(2**64 - 1, 2**64 - 1)]).codes == [Code.INVALID_ARGUMENT]
    assert ns.put(["k"], [[]]).codes == [Code.INVALID_ARGUMENT]
    for bad in ((-1, 1), (0, 64 * CHUNK + 1), (64 * CHUNK, 1)):
        with pytest.raises(ValueError):
            buffer.span(*bad)
    with pytest.raises(ValueError):
        buffer.spans(CHUNK, 65)
    with pytest.raises(cistern.CisternError):
        client.allocate(0)
    with pytest.raises(ValueError):
        ns.exists(["k"], deadline=0)
