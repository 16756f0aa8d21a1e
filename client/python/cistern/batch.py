"""Batches as the C interface takes them: keys, items, results."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Union

from cistern import _abi
from cistern.errors import Code
from cistern.memory import locate


class Unit(NamedTuple):
    """Unit `unit` of a registered layout, as a chunk's memory."""

    layout: int
    unit: int


# One chunk's memory: a piece (see cistern.memory), several of them in a list, or a layout's unit.
Memory = Any


class Keys(Sequence[bytes]):
    """Keys of a namespace, hashed once. Made by Namespace.keys; slices are Keys too."""

    __slots__ = ("_raw", "ids")

    def __init__(self, raw: Sequence[bytes], ids: bytes) -> None:
        self._raw = raw
        self.ids = ids  # 16 bytes each

    def __len__(self) -> int:
        return len(self._raw)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self._raw))
            if step != 1:
                raise ValueError("keys are cut into runs, without a step")
            last = max(first, last)
            return Keys(self._raw[first:last], self.ids[16 * first:16 * last])
        return self._raw[index]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._raw)


KeysLike = Union[Keys, Sequence[Union[bytes, str]]]


class ChunkResult(NamedTuple):
    code: Code
    verified: bool  # a get that held every byte to its digest
    nbytes: int  # the chunk's length, where it is known


class BatchResult(Sequence[ChunkResult]):
    """What became of each chunk of a batch."""

    __slots__ = ("_raw", "message")

    def __init__(self, raw: bytes, message: str) -> None:
        self._raw = raw
        self.message = message  # about the first failure

    @property
    def codes(self) -> list[int]:
        """Of each chunk; compare with Code."""
        return memoryview(self._raw).cast("i")[::4].tolist()

    @property
    def ok(self) -> bool:
        """Every chunk is where it should be: OK, or (a put) PRESENT."""
        return max(self.codes, default=0) <= 1

    @property
    def nbytes(self) -> list[int]:
        return memoryview(self._raw).cast("Q")[1::2].tolist()

    def __len__(self) -> int:
        return len(self._raw) // _abi.RESULT.size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        code, flags, nbytes = _abi.RESULT.unpack_from(self._raw, index % len(self) * _abi.RESULT.size)
        return ChunkResult(Code(code), bool(flags & _abi.RESULT_VERIFIED), nbytes)

    def __repr__(self) -> str:
        counts = {code.name: self.codes.count(code) for code in Code if code in self.codes}
        return f"BatchResult({counts}, {self.message!r})"


class Items:
    """Packed items, and what they point to. Lives as long as the call reads them."""

    __slots__ = ("address", "count", "held", "_packed", "_spans", "_keys")

    def __init__(self) -> None:
        self.held: list[Any] = []  # what keeps the chunks' memory in place
        self._spans = array("Q")
        self._keys = b""
        self._packed = array("B")
        self.address = 0
        self.count = 0

    def _gather(self, memories: Sequence[Memory], writable: bool) -> list[tuple[int, int, int, int]]:
        """(first span, spans, layout, unit) of each chunk."""
        spans, held, found = self._spans, self.held, []
        position = 0
        for memory in memories:
            if type(memory) is tuple:  # the fast way
                address, nbytes = memory
                spans.append(address)
                spans.append(nbytes)
                found.append((position, 1, 0, 0))
                position += 1
            elif isinstance(memory, Unit):
                found.append((0, 0, memory.layout, memory.unit))
            elif isinstance(memory, list):
                for piece in memory:
                    spans.extend(locate(piece, writable, held))
                found.append((position, len(memory), 0, 0))
                position += len(memory)
            else:
                spans.extend(locate(memory, writable, held))
                found.append((position, 1, 0, 0))
                position += 1
        return found

    def pack_tuples(self, memories: Sequence[Memory], ids: bytes, item: bytes) -> bool:
        """Packs chunks of one piece each, all of them tuples, a column at a time: some 20 times faster
        than an item at a time. `item` is what they have in common. False: they are not of that kind.
        """
        if set(map(type, memories)) != {tuple} or set(map(len, memories)) != {2}:
            return False
        count, words = len(memories), len(item) // 8
        self._spans = array("Q", chain.from_iterable(memories))
        base = self._spans.buffer_info()[0]
        packed = bytearray(item * count)
        columns, halves = memoryview(packed).cast("Q"), memoryview(ids).cast("Q")
        columns[1::words] = halves[::2]
        columns[2::words] = halves[1::2]
        columns[3::words] = memoryview(array("Q", range(base, base + 16 * count, 16)))
        self._seal(packed, count)
        return True

    def _seal(self, packed: bytearray, count: int) -> None:
        self._packed = array("B", packed)
        self.address = self._packed.buffer_info()[0] if count else 0
        self.count = count


def put_items(keys: Keys, sources: Sequence[Memory], shard: int, with_keys: bool) -> Items:
    if len(keys) != len(sources):
        raise ValueError(f"{len(keys)} keys, and memory for {len(sources)}")
    items = Items()
    if not with_keys:
        common = _abi.PUT_ITEM.pack(_abi.PUT_ITEM.size, shard, 0, b"", 0, 1, 0, 0, 0, 0)
        if items.pack_tuples(sources, keys.ids, common):
            return items
    places = items._gather(sources, writable=False)
    base = items._spans.buffer_info()[0]
    key_at, lengths = 0, [0] * len(keys)
    if with_keys:
        items._keys = b"".join(keys)
        lengths = [len(key) for key in keys]
        key_at = _address_of(items._keys)
    size, pack, ids = _abi.PUT_ITEM.size, _abi.PUT_ITEM.pack_into, keys.ids
    packed = bytearray(size * len(places))
    at = identity = 0
    for (first, count, layout, unit), length in zip(places, lengths):
        pack(packed, at, size, shard, 0, ids[identity:identity + 16], base + 16 * first if count else 0,
             count, layout, unit, key_at if length else 0, length)
        at += size
        identity += 16
        key_at += length
    items._seal(packed, len(places))
    return items


def get_items(keys: Keys, targets: Sequence[Memory], shard: int, any_length: bool,
              ranges: Sequence[tuple[int, int]] | None, parts: tuple[int, int] | None) -> Items:
    if len(keys) != len(targets) or (ranges is not None and len(ranges) != len(keys)):
        raise ValueError(f"{len(keys)} keys, and memory (or ranges) for another number")
    items = Items()
    if ranges is None:
        common = _abi.GET_ITEM.pack(_abi.GET_ITEM.size, shard, any_length, b"", 0, 1, 0, 0, 0, 0,
                                    *(parts or (0, 0)))
        if items.pack_tuples(targets, keys.ids, common):
            return items
    places = items._gather(targets, writable=True)
    base = items._spans.buffer_info()[0]
    size, pack, ids = _abi.GET_ITEM.size, _abi.GET_ITEM.pack_into, keys.ids
    first_part, part_count = parts or (0, 0)
    packed = bytearray(size * len(places))
    whole: Iterable[tuple[int, int]] = ranges if ranges is not None else ((0, 0),) * len(places)
    at = identity = 0
    for (first, count, layout, unit), (offset, nbytes) in zip(places, whole):
        pack(packed, at, size, shard, any_length, ids[identity:identity + 16],
             base + 16 * first if count else 0, count, layout, unit, offset, nbytes, first_part,
             part_count)
        at += size
        identity += 16
    items._seal(packed, len(places))
    return items


def _address_of(data: bytes) -> int:
    return locate(data, False, [])[0]  # stays: the caller holds the bytes
