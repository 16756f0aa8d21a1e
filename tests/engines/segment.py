"""Reads and harms a store's DRAM segments from outside, as failing memory would: docs/formats/segment.md."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct("<HBBI16s16sQQQ")
_COMMITTED = (2, 3)


@dataclass(frozen=True)
class StoredChunk:
    path: Path
    version: int  # the order in which the store committed them
    offset: int
    nbytes: int


def chunks(folder: Path) -> list[StoredChunk]:
    """What is committed in the segments under `folder`, in the order of commits."""
    found = []
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:8] != b"CISTSEG1":
                continue
            table, count = struct.unpack_from("<QI", data, 72)
            for i in range(count):
                magic, _, state, _, _, _, version, offset, nbytes = _HEADER.unpack_from(
                    data, table + 128 * i)
                if magic == 0x4843 and state in _COMMITTED:
                    found.append(StoredChunk(path, version, offset, nbytes))
    return sorted(found, key=lambda one: one.version)


def harm(chunk: StoredChunk) -> None:
    """Swaps the chunk's halves: the layers change places, and every number stays a usual one."""
    with open(chunk.path, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        old = data[chunk.offset:chunk.offset + chunk.nbytes]
        half = chunk.nbytes // 2
        data[chunk.offset:chunk.offset + chunk.nbytes] = old[half:] + old[:half]
