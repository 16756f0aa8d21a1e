"""The connector's side in a worker: moves chunks between the pool and the KV cache. No vLLM in here.

All calls come on the worker's main thread and none of them waits but where it says so: transfers are
asynchronous calls of the client library, whose deadlines bound them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from cistern.batch import BatchResult, Memory, Unit
from cistern.client import Buffer
from cistern.errors import CisternError, Code
from cistern.namespace import Lookup, Namespace
from cistern.op import GetOp, Op
from cistern.vllm import layout as layouts
from cistern.vllm.breaker import Breaker
from cistern.vllm.link import PoolLink
from cistern.vllm.messages import Load, Save, StepReport, StepWork
from cistern.vllm.options import Options
from cistern.vllm.scheduler import WorkerLayout
from cistern.vllm.stats import Counts

_OPEN_WAIT = 1.0  # for the namespace, when there is work: the scheduler's side has it open already
_IDLE_WAIT = 0.002  # in a step that computes nothing: better than to spin through it
_PREEMPTED_WAIT = 0.25  # for saves out of blocks that the engine wants back
_BUSY = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)


@dataclass
class _Loading:
    load: Load
    op: GetOp
    lookup: Optional[Lookup]  # adopted: where the chunks are; has to stay


class WorkerSide:
    """Used by the worker's main thread only."""

    def __init__(self, options: Options, shard: int, link: PoolLink, logger: logging.Logger) -> None:
        self._options = options
        self._shard = shard
        self._link = link
        self._logger = logger
        self._sync = options.offload_mode == "sync"
        self.counts = Counts()
        self._breaker = Breaker()
        self._layout: layouts.CacheLayout | None = None
        self._unit_layout = 0  # the number of the registered layout; 0: blocks are named by spans
        self._ends: dict[str, int] = {}
        self._buffers: list[Buffer] = []
        self._work = StepWork(0)
        self._loading: list[_Loading] = []
        self._saving: dict[str, list[Op[BatchResult]]] = {}
        self._closing: set[str] = set()
        self._received: set[str] = set()
        self._bad_blocks: set[int] = set()
        self._on_this_host = False

    def register(self, caches: Mapping[str, Any], block_count: int) -> None:
        """The engine's KV cache. Raises LayoutError or CisternError: nothing can be shared."""
        layout = layouts.read_caches(caches, block_count)
        client = self._link.client()
        self._buffers = [client.register(region) for region in layout.regions()]
        if layout.uniform:
            bases, stride, size = layouts.as_layout(layout)
            self._unit_layout = client.register_layout(bases, unit_count=block_count,
                                                       unit_stride_bytes=stride, piece_bytes=size)
        self._ends = layout.layer_ends()
        self._layout = layout

    def handshake(self) -> WorkerLayout | None:
        if self._layout is None:
            return None
        return WorkerLayout(self._shard, self._layout.describe(), self._layout.part_bytes)

    # --- A step, in the order of the calls ----------------------------------------------------------

    def reclaim(self, work: StepWork) -> None:
        """Blocks are about to be overwritten: nothing reads from them when this returns. Waits a
        moment for saves, then cancels them."""
        end = time.monotonic() + _PREEMPTED_WAIT
        for request_id in work.preempted:
            for op in self._saving.pop(request_id, ()):
                if _is_done(op, max(end - time.monotonic(), 0)):
                    self._saved(op)
                else:
                    op.close()  # cancels it, and waits for its quiet end

    def begin(self, work: StepWork) -> None:
        self._work = work

    def start(self) -> None:
        """Starts the step's loads and saves."""
        work = self._work
        if work.namespace is not None and self._layout is not None:
            self._link.want(*work.namespace)
        for load in work.loads:
            self._start_load(load)
        for save in work.saves:
            self._start_save(save)
        self._closing.update(work.closing)

    def wait_layer(self, name: str) -> None:
        """Sync mode: waits until the layer's bytes of every load are in place, or will not come."""
        if not self._loading or not self._sync or self._layout is None:
            return
        end = self._ends.get(name, self._layout.chunk_bytes)
        for loading in self._loading:
            try:
                loading.op.wait_part(layouts.last_part(end, self._part_bytes()))
            except CisternError:
                pass  # what became of it is in its result

    def finish_forward(self) -> None:
        """Sync mode: waits for the step's loads, and for its saves."""
        if not self._sync:
            return
        for loading in self._loading:
            self._loaded(loading)
        self._loading = []
        for ops in self._saving.values():
            for op in ops:
                self._saved(op)
        self._saving.clear()

    def poll(self) -> tuple[set[str], set[str]]:
        """(requests of which all saves are done and that are closed, requests that were loaded between
        steps). Not cheap only where the step has nothing else to do."""
        self.finish_forward()  # with drafted tokens the engine asks for results first
        if self._loading and self._work.idle:
            _is_done(self._loading[0].op, _IDLE_WAIT)
        still: list[_Loading] = []
        for loading in self._loading:
            if _is_done(loading.op):
                self._loaded(loading)
            else:
                still.append(loading)
        self._loading = still
        for request_id, ops in list(self._saving.items()):
            for op in [one for one in ops if _is_done(one)]:
                self._saved(op)
                ops.remove(op)
            if not ops:
                del self._saving[request_id]
        sent = {one for one in self._closing if one not in self._saving}
        self._closing -= sent
        received, self._received = self._received, set()
        # Of what a step itself has waited for the engine must hear of bad blocks only.
        return sent, set() if self._sync else received

    def take_bad_blocks(self) -> set[int]:
        """Blocks that were to be loaded and were not."""
        bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def report(self) -> StepReport:
        return StepReport(self._work.step, self._on_this_host)

    def close(self) -> None:
        """Waits for saves, within their deadline; gives up loads."""
        for loading in self._loading:
            loading.op.close()
        self._loading = []
        for ops in self._saving.values():
            for op in ops:
                self._saved(op)
        self._saving.clear()
        self._link.close()
        for buffer in self._buffers:
            buffer.close()
        self._buffers = []

    # --- Transfers ----------------------------------------------------------------------------------

    def _namespace(self) -> Namespace | None:
        return self._link.namespace or self._link.wait(_OPEN_WAIT)

    def _part_bytes(self) -> int:
        namespace = self._link.namespace
        assert namespace is not None and self._layout is not None
        return namespace.part_bytes or min(self._layout.chunk_bytes, 1 << 20)

    def _memory(self, block: int) -> Memory:
        if self._unit_layout:
            return Unit(self._unit_layout, block)
        assert self._layout is not None
        return self._layout.spans(block)

    def _start_load(self, load: Load) -> None:
        self.counts.add(loads=1)
        try:
            namespace = self._namespace()
            if namespace is None or self._layout is None:
                raise CisternError(Code.UNAVAILABLE, "the worker has no pool")
            lookup = None
            if load.ticket:
                try:
                    lookup = namespace.adopt(load.ticket)
                except CisternError as error:
                    self._logger.warning("Cistern: a ticket was not taken: %s", error)
            op = namespace.get_async(load.keys, [self._memory(block) for block in load.block_ids],
                                     shard=self._shard, order="part" if self._sync else "chunk",
                                     deadline=self._options.load_deadline)
        except Exception as error:  # whatever it is: the request waits for an answer
            self._load_failed(load, str(error))
            return
        self._loading.append(_Loading(load, op, lookup))

    def _load_failed(self, load: Load, why: str) -> None:
        self.counts.add(load_failures=1, missed_chunks=len(load.keys))
        self._logger.warning("Cistern: a load of %d chunks failed: %s", len(load.keys), why)
        self._bad_blocks.update(load.block_ids)
        self._received.add(load.request_id)

    def _loaded(self, loading: _Loading) -> None:
        """The get is done, or is waited for now."""
        load = loading.load
        try:
            results = loading.op.result()
        except CisternError as error:
            self._load_failed(load, str(error))
            return
        finally:
            if loading.lookup is not None:
                loading.lookup.close()
        assert self._layout is not None
        good = verified = 0
        for block, result in zip(load.block_ids, results):
            if result.code == Code.OK and result.nbytes == self._layout.chunk_bytes:
                good += 1
                verified += result.verified
            else:
                self._bad_blocks.add(block)
        missed = len(load.keys) - good
        size = self._layout.chunk_bytes
        self.counts.add(loaded_chunks=good, loaded_bytes=good * size, verified_bytes=verified * size,
                        missed_chunks=missed, load_failures=1 if missed else 0)
        if missed:
            self._logger.warning("Cistern: %d of %d chunks did not come: %s", missed, len(load.keys),
                                 results.message)
        self._received.add(load.request_id)
        self._look_at_wires()

    def _start_save(self, save: Save) -> None:
        namespace = self._namespace() if self._breaker.closed else None
        if namespace is None or self._layout is None:
            self.counts.add(unsaved_chunks=len(save.keys))
            return
        try:
            op = namespace.put_async(save.keys, [self._memory(block) for block in save.block_ids],
                                     shard=self._shard, affinity=save.affinity, background=True,
                                     deadline=self._options.save_deadline)
        except CisternError as error:
            self._save_failed(len(save.keys), error)
            return
        self._saving.setdefault(save.request_id, []).append(op)

    def _save_failed(self, chunks: int, error: CisternError) -> None:
        self.counts.add(unsaved_chunks=chunks)
        if self._breaker.failed():
            self._logger.warning("Cistern: nothing can be stored for a while: %s", error)

    def _saved(self, op: Op[BatchResult]) -> None:
        try:
            results = op.result()
        except CisternError as error:
            self._save_failed(1, error)
            return
        codes = results.codes
        stored = codes.count(Code.OK)
        present = codes.count(Code.PRESENT) + codes.count(Code.IN_PROGRESS)
        size = self._layout.chunk_bytes if self._layout is not None else 0
        self.counts.add(saved_chunks=stored, saved_bytes=stored * size, present_chunks=present,
                        unsaved_chunks=len(codes) - stored - present)
        if any(code in _BUSY for code in codes):
            if self._breaker.failed():
                self._logger.warning("Cistern: nothing can be stored for a while: %s", results.message)
        else:
            self._breaker.succeeded()
        self._look_at_wires()

    def _look_at_wires(self) -> None:
        wires = self._link.client().wires()
        self._on_this_host = bool(wires) and all(one.wire == "shm" for one in wires)


def _is_done(op: Op[BatchResult], seconds: float = 0) -> bool:
    try:
        return op.wait(seconds)
    except CisternError:
        return True  # its result says the same, and is taken where that is handled
