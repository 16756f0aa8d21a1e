"""An engine's connection to the pool: made, and made anew, on a thread of its own, so that a pool
that is away never holds up the engine."""

from __future__ import annotations

import logging
import threading
from typing import Optional

from cistern.client import Client, connect
from cistern.errors import CisternError, Code
from cistern.namespace import Namespace
from cistern.vllm.options import Options

_RETRY_SECONDS = (0.25, 0.5, 1.0, 2.0, 5.0)
_OPEN_SECONDS = 2.0
# Trying again does not help with these: somebody has to do something. It is tried all the same.
_LASTING = (Code.PERMISSION_DENIED, Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT)


class PoolLink:
    """Thread-safe. Does nothing until want() says which namespace it is to be."""

    def __init__(self, options: Options, logger: logging.Logger) -> None:
        self._options = options
        self._logger = logger
        self._condition = threading.Condition()
        self._wanted: tuple[str, str, int] | None = None
        self._client: Client | None = None
        self._namespace: Namespace | None = None
        self._closed = False
        self._thread: Optional[threading.Thread] = None

    def client(self) -> Client:
        """Made without a connection: memory can be registered before there is a pool. Raises
        CisternError if the configuration is wrong (the token's file)."""
        with self._condition:
            if self._client is None:
                self._client = connect(self._options.master_address,
                                       token_file=self._options.pool_token_file or None,
                                       wire=self._options.wire,
                                       connections_per_store=self._options.connections_per_store,
                                       deadline=self._options.load_deadline, lazy=True)
            return self._client

    def want(self, name: str, fingerprint: str, part_bytes: int) -> None:
        """Opens the namespace as soon as that can be. Only the first call counts."""
        with self._condition:
            if self._wanted is not None or self._closed:
                return
            self._wanted = (name, fingerprint, part_bytes)
            self._thread = threading.Thread(target=self._open, name="cistern-link", daemon=True)
            self._thread.start()

    @property
    def namespace(self) -> Namespace | None:
        """None until it is open."""
        return self._namespace

    def wait(self, seconds: float) -> Namespace | None:
        with self._condition:
            self._condition.wait_for(lambda: self._namespace is not None or self._closed, seconds)
            return self._namespace

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()
            client, self._client = self._client, None
        if client is not None:
            client.close()
        if self._thread is not None:
            self._thread.join(10)
        if self._namespace is not None:
            self._namespace.close()

    def _open(self) -> None:
        assert self._wanted is not None
        name, fingerprint, part_bytes = self._wanted
        told: Optional[Code] = None
        attempt = 0
        while not self._closed:
            try:
                opened = self.client().namespace(
                    name, fingerprint, verify=self._options.verify, part_bytes=part_bytes,
                    ttl=self._options.ttl or None, deadline=_OPEN_SECONDS)
            except CisternError as error:
                if self._closed:
                    return
                if error.code != told:
                    told = error.code
                    lasting = " (this has to be mended)" if error.code in _LASTING else ""
                    self._logger.warning("Cistern: no pool at %s, nothing is shared until there is: %s%s",
                                         self._options.master_address, error, lasting)
            else:
                with self._condition:
                    self._namespace = opened
                    self._condition.notify_all()
                if opened.verify != self._options.verify:
                    self._logger.warning("Cistern: %s was opened before with verify=%s, which holds",
                                         name, opened.verify)
                self._logger.info("Cistern: pool %s, namespace %s", self._options.master_address, name)
                return
            with self._condition:
                wait = _RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)]
                self._condition.wait_for(lambda: self._closed, wait)
            attempt += 1
