"""Asynchronous calls: waited for by threads, or by asyncio through their eventfds."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from typing import Any, Callable, Generator, Generic, NamedTuple, Optional, TypeVar

from cistern import _abi
from cistern._abi import lib
from cistern.batch import BatchResult
from cistern.errors import CisternError, Code, check, last_message

T = TypeVar("T")

ALL_PARTS = 0xFFFFFFFF
_SLICE = 0.1  # between two looks at Python's signals


class MissedChunk(NamedTuple):
    """A chunk of a get that will not come."""

    item: int
    code: Code
    parts_done: int


class Op(Generic[T]):
    """A call under way. `await` it, or wait() and result().

    Its memory is in use until it is done or closed. Closing (also by `with`, or when nobody holds it)
    cancels it and waits for its quiet end. Thread-safe, but for awaiting: one task, once.
    """

    def __init__(self, handle: int, take: Callable[[int], T], held: Any) -> None:
        self._handle = handle
        self._take = take
        self._held = held  # the memory's owners

    def done(self) -> bool:
        return self.wait(0)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """False when `timeout` seconds passed first. The thread does the call's I/O meanwhile."""
        return self._sliced(lambda us: int(lib.cistern_op_wait(self._handle, us)), timeout) == Code.OK

    @staticmethod
    def _sliced(wait: Callable[[int], int], timeout: Optional[float]) -> int:
        """Waits a slice at a time, so that Ctrl-C is seen."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE if end is None else min(max(end - time.monotonic(), 0), _SLICE)
            code = wait(int(left * 1e6))
            if code not in (Code.OK, Code.NOT_FOUND, Code.IN_PROGRESS):
                check(code)
            if code != Code.IN_PROGRESS or (end is not None and time.monotonic() >= end):
                return code

    def result(self) -> T:
        """Waits for it, and closes the call. Raises CisternError where the whole could not be tried."""
        self.wait()
        try:
            return self._take(self._handle)
        finally:
            self.close()

    def cancel(self) -> None:
        """Asks it to end early; it still has to be waited for."""
        check(lib.cistern_op_cancel(self._handle))

    def fileno(self) -> int:
        """A descriptor that becomes readable when it is done, for select, poll and epoll."""
        return self._descriptor(lib.cistern_op_eventfd)

    def _descriptor(self, function: Any) -> int:
        fd = ctypes.c_int()
        check(function(self._handle, ctypes.byref(fd)))
        return fd.value

    def close(self) -> None:
        handle, self._handle = self._handle, 0
        if handle:
            lib.cistern_op_free(handle)
        self._held = None

    def __enter__(self) -> Op[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", 0):
            self.close()

    def __await__(self) -> Generator[Any, None, T]:
        return self._await().__await__()

    async def _await(self) -> T:
        if not self.done():
            try:
                await _readable(self.fileno())
            except BaseException:
                # The task is cancelled: then nothing of the call goes on either.
                self.close()
                raise
        return self.result()


class GetOp(Op[BatchResult]):
    """A get under way. With order="part" one starts on the first layers while others arrive."""

    def parts_done(self) -> int:
        """Parts before this number are in place in every chunk that has not failed; ALL_PARTS once
        that is so of all."""
        parts = ctypes.c_uint32()
        check(lib.cistern_op_parts_done(self._handle, ctypes.byref(parts)))
        return parts.value

    def wait_part(self, part: int, timeout: Optional[float] = None) -> Optional[bool]:
        """True: every chunk that has such a part has it in place. False: but for those of missed().
        None: not yet when `timeout` had passed."""
        code = self._sliced(lambda us: int(lib.cistern_op_wait_part(self._handle, part, us)), timeout)
        return None if code == Code.IN_PROGRESS else code == Code.OK

    async def part(self, part: int) -> bool:
        """wait_part for asyncio. One task at a time."""
        while True:
            state = self.wait_part(part, 0)
            if state is not None:
                return state
            fd = self._descriptor(lib.cistern_op_part_eventfd)
            await _readable(fd)
            try:
                os.read(fd, 8)
            except BlockingIOError:
                pass

    def missed(self) -> list[MissedChunk]:
        """The chunks that have failed for good, in the order in which that was known."""
        room = 64
        while True:
            found, count = (_abi.MissedChunk * room)(), ctypes.c_size_t()
            check(lib.cistern_op_missed(self._handle, found, room, ctypes.byref(count)))
            if count.value <= room:
                return [MissedChunk(one.item, Code(one.code), one.parts_done)
                        for one in found[:count.value]]
            room = count.value


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    # The loop may know the descriptor's number from an earlier call: a copy is ours alone.
    mine = os.dup(fd)
    loop.add_reader(mine, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        loop.remove_reader(mine)
        os.close(mine)


def take_results(count: int) -> Callable[[int], BatchResult]:
    """How the results of a put or get of `count` chunks are taken from an op."""
    def take(handle: int) -> BatchResult:
        raw = ctypes.create_string_buffer(max(count, 1) * _abi.RESULT.size)
        code = lib.cistern_op_results(handle, raw, count)
        if code:
            raise CisternError(code, last_message())
        return BatchResult(raw.raw[:count * _abi.RESULT.size], last_message())
    return take
