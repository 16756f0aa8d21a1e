"""Clients and the memory they move bytes between."""

from __future__ import annotations

import atexit
import ctypes
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional

from cistern import _abi
from cistern._abi import lib, sized, to_micros
from cistern.errors import CisternError, Code, check
from cistern.memory import locate
from cistern.namespace import Namespace

_WIRES = {"auto": 0, "tcp": 1, "shm": 2, "rdma": 3}
_VERIFY = {"always": 0, "sampled": 1, "off": 2}
_LAZY = 1
_NO_READ, _NO_WRITE = 1, 2
_NO_DIGEST, _MUTABLE, _KEEP_KEYS = 1, 2, 4

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class StoreWire(NamedTuple):
    """How a store is reached."""

    store: bytes
    wire: str  # "shm", "rdma", "tcp"
    address: str
    why: str


class _Allocated:
    """The library's memory; given back when nobody sees it any more."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __del__(self, free: Callable[[int], int] = lib.cistern_buffer_free) -> None:
        free(self.handle)


class Buffer:
    """Registered memory. Close it, or let go of it, when no call names it any more.

    Thread-safe. Closing waits for calls in flight. Memory of Client.allocate stays as long as a view
    of it (memoryview, numpy array) lives; memory of Client.register is the caller's object, held in
    place until then.
    """

    def __init__(self, handle: int, address: int, nbytes: int, held: list[Any]) -> None:
        self.address = address
        self.nbytes = nbytes
        self._handle = handle
        self._held = held
        self._memory: Any = None  # of allocate: a ctypes array that owns the memory

    def span(self, offset: int, nbytes: int) -> tuple[int, int]:
        """`nbytes` from `offset` on, as a chunk's memory: the cheapest form of it."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{nbytes} bytes at {offset} of a buffer of {self.nbytes}")
        return self.address + offset, nbytes

    def spans(self, nbytes: int, count: Optional[int] = None) -> list[tuple[int, int]]:
        """The buffer cut into pieces of `nbytes` (the first `count` of them)."""
        count = self.nbytes // nbytes if count is None else count
        if count * nbytes > self.nbytes:
            raise ValueError(f"{count} pieces of {nbytes} bytes of a buffer of {self.nbytes}")
        return [(self.address + i * nbytes, nbytes) for i in range(count)]

    @property
    def view(self) -> memoryview:
        """The bytes, of Client.allocate only. numpy.frombuffer(buffer.view, dtype) is an array."""
        if self._memory is None:
            raise ValueError("the memory is the caller's own, or the buffer is closed")
        return memoryview(self._memory).cast("B")

    def close(self) -> None:
        handle, self._handle = self._handle, 0
        if handle:
            # What is freed twice by two threads is refused by the library, not crashed over.
            lib.cistern_buffer_free(handle)
        self._memory = None
        for one in self._held:
            release = getattr(one, "release", None)
            if release is not None:
                release()
        self._held = []

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", 0):
            self.close()


class Client:
    """A connection to a pool. Thread-safe; all calls let go of the GIL.

    A child forked afterwards gets CisternError(FAILED_PRECONDITION) from every call and connects
    anew. Clients are closed when the interpreter ends.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        _clients.add(self)

    def close(self) -> None:
        """Cancels what is pending and waits for its quiet end. Idempotent."""
        handle, self._handle = self._handle, 0
        if handle:
            lib.cistern_close(handle)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", 0):
            self.close()

    def namespace(self, name: str, fingerprint: str, *, verify: str = "always",
                  ttl: Optional[float] = None, part_bytes: int = 0, digest: bool = True,
                  mutable: bool = False, keep_keys: bool = False,
                  deadline: Optional[float] = None) -> Namespace:
        """Opens, and creates at first, a namespace; see cistern_open_namespace. The options in force
        are the first opener's. Seconds."""
        for text in (name, fingerprint):
            if "\0" in text:
                raise ValueError("names and fingerprints have no NUL")
        flags = ((0 if digest else _NO_DIGEST) | (_MUTABLE if mutable else 0)
                 | (_KEEP_KEYS if keep_keys else 0))
        options = sized(_abi.NamespaceOptions, flags=flags, verify=_VERIFY[verify],
                        ttl_us=to_micros(ttl), part_bytes=part_bytes)
        call = sized(_abi.CallOptions, deadline_us=to_micros(deadline))
        handle = ctypes.c_uint64()
        check(lib.cistern_open_namespace(self._handle, name.encode(), fingerprint.encode(),
                                         ctypes.byref(options), ctypes.byref(call),
                                         ctypes.byref(handle)))
        return Namespace(self, handle.value, name)

    def allocate(self, nbytes: int) -> Buffer:
        """Memory that every wire serves best: shared, page-aligned, zeroed."""
        handle, address = ctypes.c_uint64(), ctypes.c_void_p()
        check(lib.cistern_allocate_buffer(self._handle, nbytes, ctypes.byref(handle),
                                          ctypes.byref(address)))
        assert address.value is not None
        memory = (ctypes.c_char * nbytes).from_address(address.value)
        memory.owner = _Allocated(handle.value)  # type: ignore[attr-defined]
        buffer = Buffer(0, address.value, nbytes, [])
        buffer._memory = memory
        return buffer

    def register(self, memory: Any, *, read: bool = True, write: bool = True) -> Buffer:
        """The caller's memory: a buffer object, a torch tensor, or (address, bytes), which then has to
        stay until the buffer is closed. `read`: puts may; `write`: gets may."""
        held: list[Any] = []
        address, nbytes = locate(memory, write, held)
        desc = sized(_abi.BufferDesc, data=address, bytes=nbytes,
                     flags=(0 if read else _NO_READ) | (0 if write else _NO_WRITE))
        handle = ctypes.c_uint64()
        check(lib.cistern_register_buffer(self._handle, ctypes.byref(desc), ctypes.byref(handle)))
        return Buffer(handle.value, address, nbytes, held)

    def register_layout(self, bases: Sequence[int], *, unit_count: int, unit_stride_bytes: int,
                        piece_bytes: int) -> int:
        """An engine's paged cache: piece l of unit u is at bases[l] + u * unit_stride_bytes. The
        number goes into Unit."""
        array = (ctypes.c_void_p * len(bases))(*bases)
        layout = sized(_abi.Layout, unit_count=unit_count, base_count=len(bases),
                       bases=ctypes.cast(array, ctypes.POINTER(ctypes.c_void_p)),
                       unit_stride_bytes=unit_stride_bytes, piece_bytes=piece_bytes)
        number = ctypes.c_uint32()
        check(lib.cistern_register_layout(self._handle, ctypes.byref(layout), ctypes.byref(number)))
        return number.value

    def unregister_layout(self, number: int) -> None:
        check(lib.cistern_unregister_layout(self._handle, number))

    def ping(self, deadline: Optional[float] = None) -> None:
        """Raises CisternError if the master does not answer."""
        call = sized(_abi.CallOptions, deadline_us=to_micros(deadline))
        check(lib.cistern_ping(self._handle, ctypes.byref(call)))

    @property
    def pool_id(self) -> bytes:
        out = ctypes.create_string_buffer(16)
        check(lib.cistern_pool_id(self._handle, out))
        return out.raw

    def stats(self) -> dict[str, int]:
        """What was counted since the client connected."""
        stats = sized(_abi.Stats)
        check(lib.cistern_client_stats(self._handle, ctypes.byref(stats)))
        return {name: getattr(stats, name) for name, *_ in _abi.Stats._fields_[2:]}

    def wires(self) -> list[StoreWire]:
        """Of the stores that were called so far."""
        found: list[StoreWire] = []
        info = sized(_abi.WireInfo)
        while True:
            code = lib.cistern_client_wire(self._handle, len(found), ctypes.byref(info))
            if code == Code.NOT_FOUND:
                return found
            check(code)
            found.append(StoreWire(bytes(info.store), info.wire.decode(), info.address.decode(),
                                   info.why.decode("utf-8", "replace")))


def connect(master: str = "127.0.0.1:7600", *, token_file: Optional[str] = None,
            deadline: Optional[float] = None, wire: str = "auto", connections_per_store: int = 0,
            max_inflight_bytes: int = 0, lazy: bool = False) -> Client:
    """A client of the pool whose master's data port is `master`. `deadline`: of calls that name none,
    in seconds (5). `wire`: auto, tcp, shm, rdma. Raises CisternError, which names the address."""
    options = sized(_abi.ClientOptions, flags=_LAZY if lazy else 0, master_address=master.encode(),
                    pool_token_file=token_file.encode() if token_file else None,
                    deadline_us=to_micros(deadline), wire=_WIRES[wire],
                    connections_per_store=connections_per_store,
                    max_inflight_bytes=max_inflight_bytes)
    handle = ctypes.c_uint64()
    check(lib.cistern_connect(ctypes.byref(options), ctypes.byref(handle)))
    return Client(handle.value)


def version() -> str:
    """The library's release."""
    text: bytes = lib.cistern_version()
    return text.decode()


_log_lock = threading.Lock()
_log_function: Any = None  # the library calls it: it has to stay


def log_to(logger: Optional[logging.Logger], least: int = logging.WARNING) -> None:
    """Sends the library's lines to `logger`; None: nowhere, as at first. For the whole process."""
    global _log_function
    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
    least_severity = next((i for i, level in enumerate(levels) if level >= least), 3)

    def write(_: object, severity: int, text: bytes) -> None:
        assert logger is not None
        logger.log(levels[min(max(severity, 0), 3)], "%s", text.decode("utf-8", "replace"))

    function = _abi.LogFunction(write) if logger is not None else _abi.LogFunction()
    with _log_lock:
        check(lib.cistern_set_log_sink(function, None, least_severity))
        _log_function = function


@atexit.register
def _close_all() -> None:
    # While Python's threads and objects are still there: afterwards a late byte or line would have
    # nowhere to go.
    if _log_function:
        lib.cistern_set_log_sink(_abi.LogFunction(), None, 0)
    for client in list(_clients):
        client.close()


__all__ = ["Buffer", "CisternError", "Client", "StoreWire", "connect", "log_to", "version"]
