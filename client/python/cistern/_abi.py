"""cistern.h as ctypes: finds the library, declares what is called. See cistern.h for what it means.

The batch calls' items are packed with `struct` instead: a ctypes structure for each costs too much.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8
from ctypes import c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from struct import Struct
from typing import Any

_MAJOR, _MINOR = 1, 0

PUT_ITEM = Struct("<IHH16sQQIIQQ")
GET_ITEM = Struct("<IHH16sQQIIQQII")
RESULT = Struct("<iIQ")
RESULT_VERIFIED = 1
ID_BYTES = 16


class ClientOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("master_address", c_char_p),
                ("pool_token_file", c_char_p), ("deadline_us", c_uint64), ("wire", c_uint32),
                ("connections_per_store", c_uint32), ("max_inflight_bytes", c_uint64)]


class CallOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("background", c_uint32), ("deadline_us", c_uint64)]


class Stats(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), *(
        (name, c_uint64) for name in (
            "lookups", "lookup_keys", "lookup_hits", "put_chunks", "put_bytes", "put_present",
            "get_chunks", "get_bytes", "get_misses", "verify_failures", "retries"))]


class WireInfo(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("store", c_uint8 * 16),
                ("wire", c_char * 16), ("address", c_char * 128), ("why", c_char * 256)]


class BufferDesc(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("data", c_void_p),
                ("bytes", c_uint64), ("kind", c_uint32), ("device", c_int32), ("fd", c_int32),
                ("reserved", c_uint32), ("fd_offset", c_uint64)]


class Layout(Structure):
    _fields_ = [("struct_size", c_uint32), ("unit_count", c_uint32), ("bases", POINTER(c_void_p)),
                ("base_count", c_uint64), ("unit_stride_bytes", c_uint64),
                ("piece_bytes", c_uint64)]


class NamespaceOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("verify", c_uint32),
                ("reserved", c_uint32), ("ttl_us", c_uint64), ("part_bytes", c_uint64)]


class NamespaceInfo(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("id", c_uint8 * 16),
                ("verify", c_uint32), ("reserved", c_uint32), ("ttl_us", c_uint64),
                ("part_bytes", c_uint64)]


class LookupOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("background", c_uint32), ("deadline_us", c_uint64),
                ("lease_us", c_uint64), ("flags", c_uint32), ("shard_first", c_uint16),
                ("shard_count", c_uint16)]


class LookupInfo(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("key_count", c_uint64),
                ("leading_run", c_uint64), ("present_count", c_uint64), ("lease_count", c_uint64),
                ("lease_us", c_uint64)]


class PutOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("background", c_uint32), ("deadline_us", c_uint64),
                ("flags", c_uint32), ("reserved", c_uint32), ("part_bytes", c_uint64),
                ("expiry_unix_us", c_uint64), ("affinity", c_uint64)]


class GetOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("background", c_uint32), ("deadline_us", c_uint64),
                ("order", c_uint32), ("reserved", c_uint32)]


class MissedChunk(Structure):
    _fields_ = [("item", c_uint32), ("code", c_int32), ("parts_done", c_uint32),
                ("reserved", c_uint32)]


class RemoveOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("background", c_uint32), ("deadline_us", c_uint64),
                ("flags", c_uint32), ("shard_first", c_uint16), ("shard_count", c_uint16)]


class MatchRemoval(Structure):
    _fields_ = [("struct_size", c_uint32), ("unreachable_stores", c_uint32),
                ("matched", c_uint64), ("removed", c_uint64), ("refused", c_uint64),
                ("failed", c_uint64)]


class ListOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("background", c_uint32), ("deadline_us", c_uint64),
                ("cursor", c_char_p), ("cursor_bytes", c_uint64), ("max_keys", c_uint64)]


class KeyPageInfo(Structure):
    _fields_ = [("struct_size", c_uint32), ("unreachable_stores", c_uint32),
                ("key_count", c_uint64), ("cursor_bytes", c_uint64)]


class ListedKey(Structure):
    _fields_ = [("struct_size", c_uint32), ("shard", c_uint32), ("id", c_uint8 * 16),
                ("key", c_void_p), ("key_bytes", c_uint64), ("bytes", c_uint64)]


LogFunction = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)

# A handle is a struct of one 64-bit number: passed as that number is.
_H = c_uint64
_P = c_void_p  # of packed bytes, or NULL
_FUNCTIONS: dict[str, list[Any]] = {
    "set_log_sink": [LogFunction, _P, c_int32],
    "connect": [POINTER(ClientOptions), POINTER(_H)],
    "close": [_H],
    "ping": [_H, POINTER(CallOptions)],
    "pool_id": [_H, c_char_p],
    "client_stats": [_H, POINTER(Stats)],
    "client_wire": [_H, c_size_t, POINTER(WireInfo)],
    "register_buffer": [_H, POINTER(BufferDesc), POINTER(_H)],
    "allocate_buffer": [_H, c_uint64, POINTER(_H), POINTER(c_void_p)],
    "buffer_free": [_H],
    "register_layout": [_H, POINTER(Layout), POINTER(c_uint32)],
    "unregister_layout": [_H, c_uint32],
    "open_namespace": [_H, c_char_p, c_char_p, POINTER(NamespaceOptions), POINTER(CallOptions),
                       POINTER(_H)],
    "namespace_free": [_H],
    "namespace_get_info": [_H, POINTER(NamespaceInfo)],
    "hash": [_H, c_char_p, _P, c_size_t, c_char_p],
    "lookup_keys": [_H, c_char_p, c_size_t, POINTER(LookupOptions), POINTER(LookupInfo), c_char_p,
                    POINTER(_H)],
    "exists": [_H, c_char_p, c_size_t, POINTER(LookupOptions), c_char_p],
    "prefetch": [_H, c_char_p, c_size_t, POINTER(LookupOptions)],
    "lookup_get_info": [_H, POINTER(LookupInfo)],
    "lookup_present": [_H, c_char_p, c_size_t],
    "lookup_ids": [_H, c_char_p, c_size_t],
    "lookup_ticket": [_H, c_char_p, c_size_t, POINTER(c_size_t)],
    "adopt": [_H, c_char_p, c_size_t, POINTER(LookupInfo), POINTER(_H)],
    "release": [_H, POINTER(CallOptions)],
    "lookup_free": [_H],
    "put": [_H, _P, c_size_t, POINTER(PutOptions), c_char_p],
    "get": [_H, _P, c_size_t, POINTER(GetOptions), c_char_p],
    "lookup_async": [_H, c_char_p, c_size_t, POINTER(LookupOptions), POINTER(_H)],
    "put_async": [_H, _P, c_size_t, POINTER(PutOptions), POINTER(_H)],
    "get_async": [_H, _P, c_size_t, POINTER(GetOptions), POINTER(_H)],
    "op_wait": [_H, c_int64],
    "op_eventfd": [_H, POINTER(c_int)],
    "op_cancel": [_H],
    "op_results": [_H, c_char_p, c_size_t],
    "op_lookup": [_H, POINTER(LookupInfo), c_char_p, c_size_t, POINTER(_H)],
    "op_free": [_H],
    "op_parts_done": [_H, POINTER(c_uint32)],
    "op_wait_part": [_H, c_uint32, c_int64],
    "op_missed": [_H, POINTER(MissedChunk), c_size_t, POINTER(c_size_t)],
    "op_part_eventfd": [_H, POINTER(c_int)],
    "remove": [_H, c_char_p, c_size_t, POINTER(RemoveOptions), c_char_p],
    "remove_all": [_H, POINTER(RemoveOptions), POINTER(c_uint64)],
    "remove_matching": [_H, c_char_p, c_size_t, POINTER(RemoveOptions), POINTER(MatchRemoval)],
    "list_keys": [_H, c_char_p, c_size_t, POINTER(ListOptions), POINTER(_H)],
    "key_page_get_info": [_H, POINTER(KeyPageInfo)],
    "key_page_key": [_H, c_size_t, POINTER(ListedKey)],
    "key_page_next": [_H, c_char_p, c_size_t],
    "key_page_free": [_H],
}


def library_path() -> str:
    """CISTERN_LIBRARY, the one in the package, or what the system's loader finds."""
    named = os.environ.get("CISTERN_LIBRARY")
    if named:
        return named
    ours = Path(__file__).parent / "lib" / "libcistern.so.1"
    return str(ours) if ours.exists() else "libcistern.so.1"


def _load() -> ctypes.CDLL:
    # CDLL lets go of the GIL for the length of each call.
    loaded = ctypes.CDLL(library_path())
    loaded.cistern_abi_version.restype = c_uint32
    version = int(loaded.cistern_abi_version())
    if version >> 16 != _MAJOR or version & 0xFFFF < _MINOR:
        raise ImportError(f"{library_path()} has the ABI {version >> 16}.{version & 0xFFFF}; "
                          f"this package needs {_MAJOR}.{_MINOR}")
    for name, arguments in _FUNCTIONS.items():
        function = getattr(loaded, f"cistern_{name}")
        function.argtypes = arguments
        function.restype = c_int32
    for name in ("last_message", "version"):
        getattr(loaded, f"cistern_{name}").restype = c_char_p
    return loaded


lib = _load()


def sized(kind: type[Structure], **fields: Any) -> Any:
    """A struct with its size set."""
    return kind(struct_size=ctypes.sizeof(kind), **fields)


def to_micros(seconds: float | None) -> int:
    """Seconds as the interface counts them. None is 0, the default; a time that is given never."""
    if seconds is None:
        return 0
    if not seconds > 0:
        raise ValueError(f"a time of {seconds} s")
    return min(max(int(min(seconds * 1e6, 2.0**62)), 1), 2**63 - 1)
