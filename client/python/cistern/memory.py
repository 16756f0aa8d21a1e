"""The caller's memory: whatever has an address, as (address, bytes).

A piece of memory is one of
  * a tuple (address, bytes): the fastest; Buffer.span makes them,
  * an object with the buffer protocol, C-contiguous: numpy arrays, memoryviews, bytearrays,
  * a contiguous torch tensor on the CPU.
"""

from __future__ import annotations

import ctypes
from typing import Any

_SIMPLE, _WRITABLE = 0, 1


class _PyBuffer(ctypes.Structure):
    # CPython's Py_buffer, part of its stable ABI since 3.11 and unchanged since 3.3.
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get.restype = ctypes.c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = [ctypes.POINTER(_PyBuffer)]
_release.restype = None


class Export:
    """Holds an object's memory in place (a bytearray cannot be resized meanwhile)."""

    __slots__ = ("_view", "address", "nbytes")

    def __init__(self, source: Any, writable: bool) -> None:
        view = _PyBuffer()
        self._view: _PyBuffer | None = None
        _get(source, ctypes.byref(view), _WRITABLE if writable else _SIMPLE)  # raises by itself
        self._view = view
        self.address: int = view.buf or 0
        self.nbytes: int = view.len

    def release(self) -> None:
        if self._view is not None:
            _release(ctypes.byref(self._view))
            self._view = None

    def __del__(self) -> None:
        self.release()


def locate(source: Any, writable: bool, held: list[Any]) -> tuple[int, int]:
    """(address, bytes) of `source`; what must live as long as that is used goes into `held`.

    TypeError, ValueError, BufferError: it has no memory, or not of a usable kind.
    """
    if type(source) is tuple:
        address, nbytes = source
        return address, nbytes
    if hasattr(source, "data_ptr"):
        if source.device.type != "cpu":
            raise ValueError(f"a tensor on {source.device}: only those on the CPU can be used")
        if not source.is_contiguous():
            raise ValueError("a tensor that is not contiguous: make it so, or name its pieces")
        held.append(source)
        return source.data_ptr(), source.numel() * source.element_size()
    export = Export(source, writable)
    held.append(export)
    return export.address, export.nbytes
