"""An engine's paged KV cache as pieces of memory: where each block's bytes are.

Works on anything that has a tensor's shape, stride, element_size and data_ptr; no torch here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

_SPANS_MAX = 4096  # of a chunk: cistern.h


class LayoutError(ValueError):
    """The cache has a shape that cannot be stored block by block; the text says which."""


@dataclass(frozen=True)
class Pieces:
    """Of one layer: block b has the bytes [base + b * stride, + size) for each base, in this order."""

    bases: tuple[int, ...]
    stride: int
    size: int
    shape: str  # of a block, for the fingerprint

    @property
    def block_bytes(self) -> int:
        return len(self.bases) * self.size


@dataclass(frozen=True)
class CacheLayout:
    """A chunk is one block's bytes: every layer's pieces, layer after layer."""

    layers: tuple[str, ...]
    pieces: tuple[Pieces, ...]
    block_count: int

    @property
    def chunk_bytes(self) -> int:
        return sum(one.block_bytes for one in self.pieces)

    @property
    def uniform(self) -> bool:
        """Every piece has the same size and stride: it can be registered as a layout."""
        return len({(one.stride, one.size) for one in self.pieces}) == 1

    @property
    def part_bytes(self) -> int:
        """A part of the chunk that is about a layer, so that layer 0 is there before the others: a
        power of two from 4 KiB to 1 MiB."""
        smallest = min(one.block_bytes for one in self.pieces)
        return 1 << min(max(smallest.bit_length() - 1, 12), 20)

    def layer_ends(self) -> dict[str, int]:
        """How many bytes of a chunk a layer needs: its own and those before it."""
        ends, end = {}, 0
        for name, one in zip(self.layers, self.pieces):
            end += one.block_bytes
            ends[name] = end
        return ends

    def spans(self, block: int) -> list[tuple[int, int]]:
        return [(base + block * one.stride, one.size) for one in self.pieces for base in one.bases]

    def regions(self) -> list[tuple[int, int]]:
        """(address, bytes) of the memory that holds all blocks, merged where it touches."""
        extents = sorted((base, base + (self.block_count - 1) * one.stride + one.size)
                         for one in self.pieces for base in one.bases)
        merged: list[list[int]] = []
        for begin, end in extents:
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        return [(begin, end - begin) for begin, end in merged]

    def describe(self) -> str:
        """Equal where chunks are interchangeable. The number of blocks is not part of it."""
        layers = hashlib.sha256("\0".join(self.layers).encode()).hexdigest()[:8]
        shapes = sorted({one.shape for one in self.pieces})
        order = hashlib.sha256("\0".join(one.shape for one in self.pieces).encode()).hexdigest()[:8]
        return f"{len(self.layers)}x({'|'.join(shapes)})/{layers}{order}"


def natural_order(name: str) -> list[Any]:
    """Sorts layer 2 before layer 10."""
    return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", name)]


def _pieces_of(name: str, tensor: Any, block_count: int) -> Pieces:
    device = getattr(getattr(tensor, "device", None), "type", "cpu")
    if device != "cpu":
        raise LayoutError(f"{name}: it is in the memory of a device ({device}), which no wire serves yet")
    shape, strides, item = list(tensor.shape), list(tensor.stride()), tensor.element_size()
    # A kernel may cut blocks finer than the engine counts them: then a dimension is a multiple.
    at = next((i for i, size in enumerate(shape) if size == block_count),
              next((i for i, size in enumerate(shape) if size and size % block_count == 0), None))
    if at is None:
        raise LayoutError(f"{name}: no dimension of {shape} counts the {block_count} blocks")
    finer = shape[at] // block_count
    block_stride = strides[at] * finer
    others = [(strides[i], shape[i]) for i in range(len(shape)) if i != at and shape[i] > 1]
    if finer > 1:
        others.append((strides[at], finer))
    run = 1
    outer: list[tuple[int, int]] = []
    for stride, size in sorted(others):
        if not outer and stride == run:
            run *= size
        elif stride < run:
            raise LayoutError(f"{name}: strides {strides} of {shape} overlap")
        else:
            outer.append((stride, size))
    if block_stride < run:
        raise LayoutError(f"{name}: strides {strides} of {shape} mix the blocks")
    outer.reverse()  # the slowest first
    offsets = [sum(stride * i for (stride, _), i in zip(outer, index))
               for index in product(*(range(size) for _, size in outer))]
    dtype = str(getattr(tensor, "dtype", "")).rsplit(".", 1)[-1]
    # The strides tell in which order a block's own dimensions lie.
    inner = ",".join(f"{size}:{stride if stride < run else 'x'}"
                     for stride, size in sorted(others, reverse=True))
    base = tensor.data_ptr()
    return Pieces(tuple(base + offset * item for offset in offsets), block_stride * item, run * item,
                  f"{dtype}[{inner}]")


def read_caches(caches: Mapping[str, Any], block_count: int) -> CacheLayout:
    """Raises LayoutError. A tensor that several layers share is stored once."""
    layers: list[str] = []
    pieces: list[Pieces] = []
    seen: set[tuple[int, ...]] = set()
    for name in sorted(caches, key=natural_order):
        one = _pieces_of(name, caches[name], block_count)
        if one.bases in seen:
            continue
        seen.add(one.bases)
        layers.append(name)
        pieces.append(one)
    if not layers:
        raise LayoutError("there is no KV cache")
    layout = CacheLayout(tuple(layers), tuple(pieces), block_count)
    if not layout.uniform and sum(len(one.bases) for one in pieces) > _SPANS_MAX:
        raise LayoutError(f"a block lies in more than {_SPANS_MAX} pieces")
    return layout


def last_part(end: int, part_bytes: int) -> int:
    """The part that has a chunk's byte before `end`."""
    return (end - 1) // part_bytes


def as_layout(layout: CacheLayout) -> tuple[Sequence[int], int, int]:
    """(bases, unit stride, piece bytes) of a uniform one."""
    first = layout.pieces[0]
    return [base for one in layout.pieces for base in one.bases], first.stride, first.size
