"""A real pool for the tests: the daemons that came with the package, or those of CISTERN_BIN_DIR."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import cistern
from cistern import dev

CHUNK = 64 << 10
_numbers = itertools.count()


@pytest.fixture(scope="session")
def pool() -> Iterator[dev.DevPool]:
    with dev.running(256 << 20, stores=2) as running:
        yield running


@pytest.fixture
def client(pool: dev.DevPool) -> Iterator[cistern.Client]:
    with cistern.connect(pool.master, token_file=pool.token_file, deadline=20) as connected:
        yield connected


@pytest.fixture
def ns(client: cistern.Client) -> cistern.Namespace:
    """A namespace of the test's own."""
    return client.namespace(f"test-{next(_numbers)}", "v1")


@pytest.fixture
def buffer(client: cistern.Client) -> cistern.Buffer:
    return client.allocate(64 * CHUNK)


def pattern(chunk: int, nbytes: int = CHUNK) -> bytes:
    """Bytes that tell the chunk and the place: every other chunk's differ, and every shift's."""
    word = b"".join((chunk * 65_537 + i).to_bytes(4, "little") for i in range(nbytes // 4))
    return word


def keys_of(count: int, prefix: str = "key") -> list[bytes]:
    return [f"{prefix}-{i}".encode() for i in range(count)]
