"""Namespaces: put, get, look up, remove, list."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from cistern import _abi
from cistern._abi import RESULT, lib, sized, to_micros
from cistern.batch import BatchResult, Items, Keys, KeysLike, Memory, get_items, put_items
from cistern.errors import Code, check, last_message
from cistern.op import GetOp, Op, take_results

if TYPE_CHECKING:
    from cistern.client import Client

_SPARSE, _NO_LEASE = 1, 2
_REPLACE, _WAIT_VISIBLE = 1, 2
_FORCE = 1
_ORDERS = {"chunk": 0, "part": 1}


class Lookup:
    """What a lookup found. Its leases last `lease` seconds from its making, or until release()."""

    def __init__(self, handle: int, info: Any, present: bytes) -> None:
        self._handle = handle
        self.leading_run: int = info.leading_run  # keys present from the front
        self.present_count: int = info.present_count
        self.leased: bool = info.lease_count > 0
        self.lease: float = info.lease_us / 1e6
        self.lease_shortened: bool = bool(info.flags & 1)
        self.flags = present  # a byte a key, bit 0: it is there

    @property
    def present(self) -> list[bool]:
        """Of each key."""
        return [flag & 1 == 1 for flag in self.flags]

    def __len__(self) -> int:
        return len(self.flags)

    def ticket(self) -> bytes:
        """Bytes with which another process gets, by Namespace.adopt, without asking the master."""
        size = ctypes.c_size_t()
        code = lib.cistern_lookup_ticket(self._handle, None, 0, ctypes.byref(size))
        if code not in (Code.OK, Code.RESOURCE_EXHAUSTED):
            check(code)
        out = ctypes.create_string_buffer(size.value)
        check(lib.cistern_lookup_ticket(self._handle, out, size.value, ctypes.byref(size)))
        return out.raw

    def release(self, deadline: Optional[float] = None) -> None:
        """Ends the leases early."""
        call = sized(_abi.CallOptions, deadline_us=to_micros(deadline))
        check(lib.cistern_release(self._handle, ctypes.byref(call)))

    def close(self) -> None:
        """Lets go of it; leases stay until they lapse."""
        handle, self._handle = self._handle, 0
        if handle:
            lib.cistern_lookup_free(handle)

    def __enter__(self) -> Lookup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", 0):
            self.close()


class ListedKey(NamedTuple):
    key: bytes
    shard: int
    nbytes: int


class MatchRemoval(NamedTuple):
    matched: int
    removed: int
    refused: int  # leased or pinned and not forced
    failed: int  # not answered in time, or the store was lost
    unreachable_stores: int


class Namespace:
    """Chunks whose bytes are interchangeable. Made by Client.namespace. Thread-safe.

    Deadlines are seconds, None the client's. Calls raise CisternError only where the whole could not
    be tried: what became of a chunk is in the results.
    """

    def __init__(self, client: Client, handle: int, name: str) -> None:
        self.client = client
        self.name = name
        self._handle = handle
        info = sized(_abi.NamespaceInfo)
        check(lib.cistern_namespace_get_info(handle, ctypes.byref(info)))
        self.id = bytes(info.id)
        self.verify = ("always", "sampled", "off")[info.verify]
        self.mutable = bool(info.flags & 2)
        self.keep_keys = bool(info.flags & 4)
        self.part_bytes: int = info.part_bytes

    def close(self) -> None:
        """Lets go of the handle. The namespace and what is in it stay."""
        handle, self._handle = self._handle, 0
        if handle:
            lib.cistern_namespace_free(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", 0):
            self.close()

    # --- Keys -------------------------------------------------------------------------------------

    def keys(self, keys: KeysLike) -> Keys:
        """Hashes keys (bytes, or text as UTF-8; 1 byte to 4 KiB) once, for several calls."""
        if isinstance(keys, Keys):
            return keys
        raw = [key if type(key) is bytes else _as_bytes(key) for key in keys]
        lengths = array("Q", map(len, raw))
        ids = ctypes.create_string_buffer(max(16 * len(raw), 1))
        check(lib.cistern_hash(self._handle, b"".join(raw), lengths.buffer_info()[0], len(raw), ids))
        return Keys(raw, ids.raw[:16 * len(raw)])

    # --- Lookup -----------------------------------------------------------------------------------

    def lookup(self, keys: KeysLike, *, shard: int = 0, shard_count: int = 1, sparse: bool = False,
               lease: bool = True, lease_time: Optional[float] = None,
               deadline: Optional[float] = None, background: bool = False) -> Lookup:
        """Which keys are there; leases the leading run, or all present ones if `sparse`."""
        hashed = self.keys(keys)
        options = _lookup_options(shard, shard_count, sparse, lease, lease_time, deadline, background)
        info, handle = sized(_abi.LookupInfo), ctypes.c_uint64()
        present = ctypes.create_string_buffer(max(len(hashed), 1))
        check(lib.cistern_lookup_keys(self._handle, hashed.ids, len(hashed), ctypes.byref(options),
                                      ctypes.byref(info), present, ctypes.byref(handle)))
        return Lookup(handle.value, info, present.raw[:len(hashed)])

    def lookup_async(self, keys: KeysLike, *, shard: int = 0, shard_count: int = 1,
                     sparse: bool = False, lease: bool = True, lease_time: Optional[float] = None,
                     deadline: Optional[float] = None, background: bool = False) -> Op[Lookup]:
        hashed = self.keys(keys)
        count = len(hashed)
        options = _lookup_options(shard, shard_count, sparse, lease, lease_time, deadline, background)
        op = ctypes.c_uint64()
        check(lib.cistern_lookup_async(self._handle, hashed.ids, count, ctypes.byref(options),
                                       ctypes.byref(op)))

        def take(handle: int) -> Lookup:
            info, lookup = sized(_abi.LookupInfo), ctypes.c_uint64()
            present = ctypes.create_string_buffer(max(count, 1))
            check(lib.cistern_op_lookup(handle, ctypes.byref(info), present, count,
                                        ctypes.byref(lookup)))
            return Lookup(lookup.value, info, present.raw[:count])

        return Op(op.value, take, None)

    def exists(self, keys: KeysLike, *, shard: int = 0, shard_count: int = 1,
               deadline: Optional[float] = None) -> list[bool]:
        """Which keys are there: no lease, and nothing is marked as used."""
        hashed = self.keys(keys)
        options = _lookup_options(shard, shard_count, False, False, None, deadline, False)
        present = ctypes.create_string_buffer(max(len(hashed), 1))
        check(lib.cistern_exists(self._handle, hashed.ids, len(hashed), ctypes.byref(options),
                                 present))
        return [flag & 1 == 1 for flag in present.raw[:len(hashed)]]

    def prefetch(self, keys: KeysLike, *, shard: int = 0, shard_count: int = 1,
                 deadline: Optional[float] = None) -> None:
        """Learns where the keys are, so that a get need not ask."""
        hashed = self.keys(keys)
        options = _lookup_options(shard, shard_count, False, False, None, deadline, False)
        check(lib.cistern_prefetch(self._handle, hashed.ids, len(hashed), ctypes.byref(options)))

    def adopt(self, ticket: bytes) -> Lookup:
        """Makes another process's lookup usable here, without a call."""
        info, handle = sized(_abi.LookupInfo), ctypes.c_uint64()
        check(lib.cistern_adopt(self._handle, ticket, len(ticket), ctypes.byref(info),
                                ctypes.byref(handle)))
        present = ctypes.create_string_buffer(max(info.key_count, 1))
        check(lib.cistern_lookup_present(handle.value, present, info.key_count))
        return Lookup(handle.value, info, present.raw[:info.key_count])

    # --- Put and get -------------------------------------------------------------------------------

    def put(self, keys: KeysLike, sources: Sequence[Memory], *, shard: int = 0, replace: bool = False,
            wait_visible: bool = False, part_bytes: int = 0, expiry: Optional[float] = None,
            affinity: int = 0, deadline: Optional[float] = None,
            background: bool = False) -> BatchResult:
        """Puts a chunk for each key: `sources` say where its bytes are (registered memory; see
        cistern.memory and Unit). Other clients' lookups see it some milliseconds later; `wait_visible`
        waits for that. `expiry`: seconds since 1970."""
        items = put_items(self.keys(keys), sources, shard, self.keep_keys)
        options = _put_options(replace, wait_visible, part_bytes, expiry, affinity, deadline, background)
        raw = bytearray(items.count * RESULT.size)
        check(lib.cistern_put(self._handle, items.address, items.count, _ref(options),
                              _into(raw)))
        return _answer(raw, items)

    def put_async(self, keys: KeysLike, sources: Sequence[Memory], *, shard: int = 0,
                  replace: bool = False, wait_visible: bool = False, part_bytes: int = 0,
                  expiry: Optional[float] = None, affinity: int = 0,
                  deadline: Optional[float] = None, background: bool = False) -> Op[BatchResult]:
        """The memory stays in use until the call is done."""
        items = put_items(self.keys(keys), sources, shard, self.keep_keys)
        options = _put_options(replace, wait_visible, part_bytes, expiry, affinity, deadline, background)
        op = ctypes.c_uint64()
        check(lib.cistern_put_async(self._handle, items.address, items.count, _ref(options),
                                    ctypes.byref(op)))
        return Op(op.value, take_results(items.count), items.held)

    def get(self, keys: KeysLike, targets: Sequence[Memory], *, shard: int = 0,
            any_length: bool = False, ranges: Optional[Sequence[tuple[int, int]]] = None,
            parts: Optional[tuple[int, int]] = None, order: str = "chunk",
            deadline: Optional[float] = None, background: bool = False) -> BatchResult:
        """Gets each key's chunk into its target, which is as long as the chunk unless `any_length`.
        `ranges`: (offset, bytes) of each; `parts`: (first, count) of all."""
        items = get_items(self.keys(keys), targets, shard, any_length, ranges, parts)
        options = _get_options(order, deadline, background)
        raw = bytearray(items.count * RESULT.size)
        check(lib.cistern_get(self._handle, items.address, items.count, _ref(options),
                              _into(raw)))
        return _answer(raw, items)

    def get_async(self, keys: KeysLike, targets: Sequence[Memory], *, shard: int = 0,
                  any_length: bool = False, ranges: Optional[Sequence[tuple[int, int]]] = None,
                  parts: Optional[tuple[int, int]] = None, order: str = "chunk",
                  deadline: Optional[float] = None, background: bool = False) -> GetOp:
        """The memory stays in use until the call is done."""
        items = get_items(self.keys(keys), targets, shard, any_length, ranges, parts)
        options = _get_options(order, deadline, background)
        op = ctypes.c_uint64()
        check(lib.cistern_get_async(self._handle, items.address, items.count, _ref(options),
                                    ctypes.byref(op)))
        return GetOp(op.value, take_results(items.count), items.held)

    # --- Removing and listing -----------------------------------------------------------------------

    def remove(self, keys: KeysLike, *, shard: int = 0, force: bool = False,
               deadline: Optional[float] = None) -> BatchResult:
        """OK, NOT_FOUND, or FAILED_PRECONDITION: leased or pinned, and not forced."""
        hashed = self.keys(keys)
        options = _remove_options(force, deadline)
        options.shard_first = shard
        raw = bytearray(len(hashed) * RESULT.size)
        check(lib.cistern_remove(self._handle, hashed.ids, len(hashed), ctypes.byref(options),
                                 _into(raw)))
        return BatchResult(bytes(raw), last_message())

    def remove_all(self, *, force: bool = False, deadline: Optional[float] = None) -> int:
        """Every chunk of the namespace. How many were removed."""
        removed = ctypes.c_uint64()
        options = _remove_options(force, deadline)
        check(lib.cistern_remove_all(self._handle, ctypes.byref(options), ctypes.byref(removed)))
        return removed.value

    def remove_matching(self, pattern: bytes, *, force: bool = False,
                        deadline: Optional[float] = None) -> MatchRemoval:
        """Needs keep_keys: every chunk whose key matches the RE2 pattern, found anywhere in it."""
        out = sized(_abi.MatchRemoval)
        options = _remove_options(force, deadline)
        check(lib.cistern_remove_matching(self._handle, pattern, len(pattern), ctypes.byref(options),
                                          ctypes.byref(out)))
        return MatchRemoval(out.matched, out.removed, out.refused, out.failed, out.unreachable_stores)

    def list_keys(self, pattern: bytes = b"", *, deadline: Optional[float] = None,
                  page: int = 1000) -> Iterator[ListedKey]:
        """Needs keep_keys: the chunks whose key matches, page by page, in no order."""
        cursor = b""
        while True:
            options = sized(_abi.ListOptions, deadline_us=to_micros(deadline), cursor=cursor or None,
                            cursor_bytes=len(cursor), max_keys=page)
            handle = ctypes.c_uint64()
            check(lib.cistern_list_keys(self._handle, pattern, len(pattern), ctypes.byref(options),
                                        ctypes.byref(handle)))
            try:
                found, cursor = _read_page(handle.value)
            finally:
                lib.cistern_key_page_free(handle.value)
            yield from found
            if not cursor:
                return


def _as_bytes(key: Any) -> bytes:
    if isinstance(key, str):
        return key.encode()
    return bytes(memoryview(key))


def _into(raw: bytearray) -> Any:
    return (ctypes.c_char * len(raw)).from_buffer(raw) if raw else None


def _answer(raw: bytearray, items: Items) -> BatchResult:
    message = last_message()
    for one in items.held:
        release = getattr(one, "release", None)
        if release is not None:
            release()
    return BatchResult(bytes(raw), message)


def _read_page(page: int) -> tuple[list[ListedKey], bytes]:
    info, key = sized(_abi.KeyPageInfo), sized(_abi.ListedKey)
    check(lib.cistern_key_page_get_info(page, ctypes.byref(info)))
    found = []
    for i in range(info.key_count):
        check(lib.cistern_key_page_key(page, i, ctypes.byref(key)))
        found.append(ListedKey(ctypes.string_at(key.key, key.key_bytes), key.shard, key.bytes))
    cursor = ctypes.create_string_buffer(max(info.cursor_bytes, 1))
    check(lib.cistern_key_page_next(page, cursor, info.cursor_bytes))
    return found, cursor.raw[:info.cursor_bytes]


# None is all defaults, and much the cheapest to make.
def _ref(options: Any) -> Any:
    return None if options is None else ctypes.byref(options)


def _lookup_options(shard: int, shard_count: int, sparse: bool, lease: bool,
                    lease_time: Optional[float], deadline: Optional[float], background: bool) -> Any:
    return sized(_abi.LookupOptions, background=background, deadline_us=to_micros(deadline),
                 lease_us=to_micros(lease_time), shard_first=shard, shard_count=shard_count,
                 flags=(_SPARSE if sparse else 0) | (0 if lease else _NO_LEASE))


def _put_options(replace: bool, wait_visible: bool, part_bytes: int, expiry: Optional[float],
                 affinity: int, deadline: Optional[float], background: bool) -> Any:
    plain = not (replace or wait_visible or part_bytes or affinity or background)
    if plain and expiry is None and deadline is None:
        return None
    return sized(_abi.PutOptions, background=background, deadline_us=to_micros(deadline),
                 flags=(_REPLACE if replace else 0) | (_WAIT_VISIBLE if wait_visible else 0),
                 part_bytes=part_bytes, expiry_unix_us=to_micros(expiry), affinity=affinity)


def _get_options(order: str, deadline: Optional[float], background: bool) -> Any:
    if order == "chunk" and deadline is None and not background:
        return None
    return sized(_abi.GetOptions, background=background, deadline_us=to_micros(deadline),
                 order=_ORDERS[order])


def _remove_options(force: bool, deadline: Optional[float]) -> Any:
    return sized(_abi.RemoveOptions, deadline_us=to_micros(deadline), flags=_FORCE if force else 0)
