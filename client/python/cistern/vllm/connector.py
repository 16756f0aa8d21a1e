"""The shell that vLLM loads: hands its calls to the scheduler's or the worker's side.

No exception leaves it, but for options that make no sense, at the engine's start: what goes wrong
here costs the engine its cache, never a request.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from cistern.client import log_to
from cistern.errors import CisternError
from cistern.vllm import facts, layout, options
from cistern.vllm.link import PoolLink
from cistern.vllm.messages import StepReport, StepWork
from cistern.vllm.scheduler import SchedulerSide, WorkerLayout
from cistern.vllm.stats import COUNTERS, Counts, total
from cistern.vllm.worker import WorkerSide

if TYPE_CHECKING:
    import torch

# Beside the engine's own, so that it is shown as those are.
logger = logging.getLogger("vllm.cistern")
Function = TypeVar("Function", bound=Callable[..., Any])


def _guarded(default: Callable[[], Any]) -> Callable[[Function], Function]:
    """Answers `default()` where the connector is off, or what it did went wrong."""
    def wrap(function: Function) -> Function:
        @functools.wraps(function)
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            if self._off:
                return default()
            try:
                return function(self, *arguments, **named)
            except Exception:
                self._errors += 1
                if self._errors & (self._errors - 1) == 0:  # the 1st, 2nd, 4th, 8th...
                    logger.exception("Cistern: %s failed (%d errors so far)", function.__name__,
                                     self._errors)
                return default()
        return call  # type: ignore[return-value]
    return wrap


@dataclass
class CisternMetadata(KVConnectorMetadata):
    work: StepWork


@dataclass
class CisternWorkerMetadata(KVConnectorWorkerMetadata):
    report: StepReport

    def aggregate(self, other: KVConnectorWorkerMetadata) -> CisternWorkerMetadata:
        assert isinstance(other, CisternWorkerMetadata)
        return CisternWorkerMetadata(self.report.merge(other.report))


@dataclass
class CisternHandshake(KVConnectorHandshakeMetadata):
    layout: WorkerLayout


@dataclass
class CisternStats(KVConnectorStats):
    """Sums of cistern.vllm.stats.COUNTERS."""

    def reset(self) -> None:
        self.data.clear()

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        return CisternStats(total([self.data, other.data]))

    def reduce(self) -> dict[str, int | float]:
        return {f"Cistern {name}": self.data[name] for name in COUNTERS if name in self.data}

    def is_empty(self) -> bool:
        return not self.data


class CisternPromMetrics(KVConnectorPromMetrics):
    """vllm:cistern_<counter>_total."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str],
                 per_engine_labelvalues: dict[int, list[object]]) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters: dict[str, dict[int, Any]] = {}
        for name, text in COUNTERS.items():
            counter = self._counter_cls(name=f"vllm:cistern_{name}", documentation=f"Cistern: {text}.",
                                        labelnames=labelnames)
            self._counters[name] = {engine: counter.labels(*values)
                                    for engine, values in per_engine_labelvalues.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, value in transfer_stats_data.items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(value)


class CisternConnector(KVConnectorBase_V1, SupportsHMA):
    """See cistern.vllm and docs/engines.md."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._errors = 0
        self._scheduler: Optional[SchedulerSide] = None
        self._worker: Optional[WorkerSide] = None
        self._options = options.parse(self._kv_transfer_config.kv_connector_extra_config or {})
        self._off = facts.cannot_share(vllm_config, kv_cache_config)
        if self._off:
            logger.warning("Cistern: off, nothing is shared: %s", self._off)
            return
        log_to(logger)  # the library's own lines
        if self._options.verify == "off":
            logger.warning("Cistern: verify is off: bytes that were flipped go unseen")
        link = PoolLink(self._options, logger)
        if role == KVConnectorRole.SCHEDULER:
            self._start_scheduler(vllm_config, kv_cache_config, link)
        else:
            self._worker = WorkerSide(self._options, _shard(vllm_config), link, logger)

    def _start_scheduler(self, vllm_config: Any, kv_cache_config: Any, link: PoolLink) -> None:
        import vllm
        from vllm.v1.core import kv_cache_utils

        seed = getattr(kv_cache_utils, "NONE_HASH", b"")
        known = facts.read(self._options, vllm_config, kv_cache_config,
                           engine="vllm-" + ".".join(vllm.__version__.split("+")[0].split(".")[:2]),
                           hash_seed=bytes(seed))
        self._adapters = facts.Adapters()
        self._scheduler = SchedulerSide(self._options, known, link, logger)

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # a save that is lost is a miss

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        # In sync mode each layer waits for its bytes, in Python.
        return bool(extra_config.get("offload_mode") == "sync")

    # --- Scheduler ----------------------------------------------------------------------------------

    def set_xfer_handshake_metadata(self, metadata: dict[int, Any]) -> None:
        self._set_layouts(metadata.values())

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], Any]) -> None:
        self._set_layouts(metadata.values())

    @_guarded(lambda: None)
    def _set_layouts(self, handshakes: Iterable[Any]) -> None:
        if self._scheduler is not None:
            self._scheduler.set_layouts([one.layout for one in handshakes
                                         if isinstance(one, CisternHandshake)])

    @_guarded(lambda: None)
    def on_new_request(self, request: Any) -> None:
        assert self._scheduler is not None
        tag = self._adapters.tag(getattr(request, "lora_request", None))
        if tag is not None:
            self._scheduler.add(request, tag)

    @_guarded(lambda: (0, False))
    def get_num_new_matched_tokens(self, request: Any,
                                   num_computed_tokens: int) -> tuple[Optional[int], bool]:
        assert self._scheduler is not None
        return self._scheduler.matched(request, num_computed_tokens)

    @_guarded(lambda: None)
    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        assert self._scheduler is not None
        self._scheduler.allocated(request, blocks.get_block_ids()[0], num_external_tokens)

    @_guarded(lambda: CisternMetadata(StepWork(0)))
    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        assert self._scheduler is not None
        return CisternMetadata(self._scheduler.work(scheduler_output))

    @_guarded(lambda: None)
    def update_connector_output(self, connector_output: Any) -> None:
        assert self._scheduler is not None
        meta = connector_output.kv_connector_worker_meta
        self._scheduler.ended(
            meta.report if isinstance(meta, CisternWorkerMetadata) else None,
            connector_output.invalid_block_ids or set(), set(connector_output.finished_recving or ()),
            set(connector_output.failed_recving or ()), set(connector_output.finished_sending or ()))

    @_guarded(lambda: False)
    def has_pending_block_frees(self) -> bool:
        assert self._scheduler is not None
        return self._scheduler.frees_blocks_soon

    @_guarded(dict)
    def get_external_cache_hit_sources(self, request: Any,
                                       num_external_tokens: int) -> dict[CacheHitSource, int]:
        assert self._scheduler is not None
        if not num_external_tokens:
            return {}
        # The pool holds chunks in DRAM; whose, a lookup does not tell. All stores that the workers
        # have reached being on this host, it is this one's.
        source = (CacheHitSource.HOST if self._scheduler.on_this_host
                  else CacheHitSource.EXTERNAL_UNSPECIFIED)
        return {source: num_external_tokens}

    @_guarded(lambda: (False, None))
    def request_finished_all_groups(
            self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, Optional[dict[str, Any]]]:
        assert self._scheduler is not None
        return self._scheduler.finished(request, block_ids[0]), None

    def request_finished(self, request: Any,
                         block_ids: list[int]) -> tuple[bool, Optional[dict[str, Any]]]:
        return self.request_finished_all_groups(request, (block_ids,))

    # --- Worker -------------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        if self._off or self._worker is None:
            return
        try:
            self._worker.register(kv_caches, self._kv_cache_config.num_blocks)
        except (layout.LayoutError, CisternError, ValueError) as error:
            logger.warning("Cistern: nothing is shared: the KV cache cannot be used: %s", error)

    @_guarded(lambda: None)
    def get_handshake_metadata(self) -> Optional[KVConnectorHandshakeMetadata]:
        assert self._worker is not None
        found = self._worker.handshake()
        return CisternHandshake(found) if found is not None else None

    @_guarded(lambda: None)
    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        assert self._worker is not None and isinstance(kv_connector_metadata, CisternMetadata)
        self._worker.reclaim(kv_connector_metadata.work)

    @_guarded(lambda: None)
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        assert self._worker is not None
        meta = self._get_connector_metadata()
        assert isinstance(meta, CisternMetadata)
        self._worker.begin(meta.work)
        self._worker.start()

    @_guarded(lambda: None)
    def wait_for_layer_load(self, layer_name: str) -> None:
        assert self._worker is not None
        self._worker.wait_layer(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any,
                      **kwargs: Any) -> None:
        """Nothing: blocks are saved when their step is confirmed (cistern.vllm.planner)."""

    @_guarded(lambda: None)
    def wait_for_save(self) -> None:
        assert self._worker is not None
        self._worker.finish_forward()

    @_guarded(lambda: (None, None))
    def get_finished(self, finished_req_ids: set[str]) -> tuple[Optional[set[str]], Optional[set[str]]]:
        assert self._worker is not None
        sent, received = self._worker.poll()
        return sent or None, received or None

    @_guarded(set)
    def get_block_ids_with_load_errors(self) -> set[int]:
        assert self._worker is not None
        return self._worker.take_bad_blocks()

    @_guarded(lambda: None)
    def build_connector_worker_meta(self) -> Optional[KVConnectorWorkerMetadata]:
        assert self._worker is not None
        return CisternWorkerMetadata(self._worker.report())

    # --- Both ---------------------------------------------------------------------------------------

    @property
    def _counts(self) -> Counts:
        side = self._scheduler or self._worker
        assert side is not None
        return side.counts

    @_guarded(lambda: None)
    def get_kv_connector_stats(self) -> Optional[KVConnectorStats]:
        taken = self._counts.take()
        return CisternStats(taken) if taken else None

    @classmethod
    def build_kv_connector_stats(cls, data: Optional[dict[str, Any]] = None) -> KVConnectorStats:
        return CisternStats(data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, metric_types: Any, labelnames: list[str],
                           per_engine_labelvalues: dict[int, list[object]],
                           ) -> Optional[KVConnectorPromMetrics]:
        try:
            return CisternPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        except Exception:  # an engine that counts otherwise still runs
            logger.exception("Cistern: its counters are not shown")
            return None

    @_guarded(lambda: None)
    def shutdown(self) -> None:
        for side in (self._worker, self._scheduler):
            if side is not None:
                side.close()


def _shard(vllm_config: Any) -> int:
    """Which share of each block this worker holds."""
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    tensor_parallel = vllm_config.parallel_config.tensor_parallel_size
    return int(get_pp_group().rank_in_group * tensor_parallel + get_tp_group().rank_in_group)
