"""Keeps an engine from waiting for a pool that does not answer, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable


class Breaker:
    """After `limit` failures in a row nothing is asked for a while, which doubles up to `longest`."""

    def __init__(self, *, limit: int = 2, shortest: float = 1.0, longest: float = 15.0,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._shortest, self._longest = limit, shortest, longest
        self._clock = clock
        self._failures = 0
        self._pause = shortest
        self._until = 0.0

    @property
    def closed(self) -> bool:
        """May one ask?"""
        return self._clock() >= self._until

    def succeeded(self) -> None:
        self._failures, self._pause = 0, self._shortest

    def failed(self) -> bool:
        """True if it opened just now."""
        self._failures += 1
        if self._failures < self._limit:
            return False
        # One failure is enough to open it again: it was only tried.
        self._failures = self._limit - 1
        self._until = self._clock() + self._pause
        self._pause = min(2 * self._pause, self._longest)
        return True
