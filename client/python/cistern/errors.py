"""Codes, and the exception that carries one."""

from __future__ import annotations

from enum import IntEnum

from cistern._abi import lib


class Code(IntEnum):
    """What became of a call, or of one chunk of a batch. cistern.h says what to do about each."""

    OK = 0
    PRESENT = 1
    IN_PROGRESS = 2
    NOT_FOUND = 3
    RESOURCE_EXHAUSTED = 4
    INVALID_ARGUMENT = 5
    DATA_LOSS = 6
    UNAVAILABLE = 7
    CANCELLED = 8
    DEADLINE_EXCEEDED = 9
    FAILED_PRECONDITION = 10
    ABORTED = 11
    INTERNAL = 12
    UNIMPLEMENTED = 13
    PERMISSION_DENIED = 14

    @classmethod
    def _missing_(cls, value: object) -> Code:
        return cls.INTERNAL  # a library of a later day


class CisternError(Exception):
    """A call as a whole failed. `code` says what to do, the text why."""

    def __init__(self, code: int, message: str) -> None:
        self.code = Code(code)
        super().__init__(f"{self.code.name.lower().replace('_', ' ')}: {message}")


def last_message() -> str:
    """What the thread's last call had to say."""
    text: bytes = lib.cistern_last_message()
    return text.decode("utf-8", "replace")


def check(code: int) -> None:
    """Raises CisternError unless `code` is 0."""
    if code:
        raise CisternError(code, last_message())
