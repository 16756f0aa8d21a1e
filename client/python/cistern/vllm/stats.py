"""What a connector counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Name, and what it counts. All since the last report.
COUNTERS = {
    "lookups": "lookups made",
    "lookup_failures": "lookups that were not answered in time, or at all",
    "offered_tokens": "tokens that the pool was found to have and that were asked for",
    "loads": "loads started",
    "load_failures": "loads of which a chunk did not come",
    "loaded_chunks": "chunks delivered into blocks",
    "loaded_bytes": "bytes delivered",
    "verified_bytes": "bytes delivered and held to their digests",
    "missed_chunks": "chunks that were promised and did not come",
    "saved_chunks": "chunks stored",
    "saved_bytes": "bytes stored",
    "present_chunks": "chunks that were there already, or being put by another engine",
    "unsaved_chunks": "chunks that the pool did not take",
}


class Counts:
    """Numbers by the names of COUNTERS."""

    def __init__(self, data: Mapping[str, int] | None = None) -> None:
        self.data: dict[str, int] = dict(data or {})

    def add(self, **more: int) -> None:
        for name, value in more.items():
            assert name in COUNTERS, name
            if value:
                self.data[name] = self.data.get(name, 0) + value

    def merge(self, other: Mapping[str, int]) -> None:
        for name, value in other.items():
            self.data[name] = self.data.get(name, 0) + value

    def take(self) -> dict[str, int]:
        taken, self.data = self.data, {}
        return taken


def total(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    counts = Counts()
    for part in parts:
        counts.merge(part)
    return counts.data
