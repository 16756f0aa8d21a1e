"""The connector's side in the engine's scheduler: asks the pool, plans, remembers. No vLLM in here:
requests and outputs are what has the attributes that are used.

One lookup a request, made in the background when it arrives: it covers the request's whole chain, so
that chunks the engine itself still has count as used in the pool, and leases what is there. Its ticket
goes to the workers, which get by it and ask nobody.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from cistern.errors import CisternError
from cistern.namespace import Lookup
from cistern.op import Op
from cistern.vllm import fingerprint
from cistern.vllm.breaker import Breaker
from cistern.vllm.link import PoolLink
from cistern.vllm.messages import Load, StepReport, StepWork
from cistern.vllm.options import Options
from cistern.vllm.planner import Planner, RequestState
from cistern.vllm.stats import Counts

_FIRST_WAIT = 0.002  # for an answer that is on its way; afterwards it is only looked for
_LEASE_MAX = 60.0


@dataclass(frozen=True)
class EngineFacts:
    """What the connector needs to know of an engine."""

    block_tokens: int
    shard_count: int  # workers that hold a share of each block
    loads: bool  # by the engine's role
    saves: bool
    prompt_only: bool
    model: str
    identity: dict[str, Any]  # of the fingerprint; the workers' layouts are added


@dataclass(frozen=True)
class WorkerLayout:
    """What a worker says of its share of the cache, once, before the first request."""

    shard: int
    description: str
    part_bytes: int


@dataclass
class _Asked:
    """A request's lookup: under way, answered, or given up."""

    keys: int
    op: Optional[Op[Lookup]] = None
    lookup: Optional[Lookup] = None
    valid_until: float = float("inf")


class SchedulerSide:
    """Used by the scheduler's thread only."""

    def __init__(self, options: Options, facts: EngineFacts, link: PoolLink,
                 logger: logging.Logger) -> None:
        self._options = options
        self._facts = facts
        self._link = link
        self._logger = logger
        self._async = options.offload_mode == "async"
        self.planner = Planner(facts.block_tokens, load_async=self._async, saves=facts.saves,
                               store_threshold=options.store_threshold,
                               prompt_only=facts.prompt_only)
        self.counts = Counts()
        self.on_this_host = False
        self._breaker = Breaker()
        self._named: tuple[str, str, int] | None = None
        self._requests: dict[str, Any] = {}
        self._chains: dict[str, list[bytes]] = {}
        self._asked: dict[str, _Asked] = {}
        self._orphans: list[Op[Lookup]] = []  # of requests that ended: closed when they are done
        self._loads: list[Load] = []
        self._load_steps: dict[str, int] = {}
        self._finishing: dict[str, tuple[RequestState, list[bytes], list[int]]] = {}
        self._kept: set[str] = set()  # ended, and their blocks are not free yet
        self._step = 0

    def set_layouts(self, layouts: Sequence[WorkerLayout]) -> None:
        """The workers' caches are known: so is the namespace."""
        if self._named is not None or not layouts:
            return
        ordered = sorted(layouts, key=lambda one: one.shard)
        if [one.shard for one in ordered] != list(range(self._facts.shard_count)):
            self._logger.warning("Cistern: %d workers hold the cache and layouts came from shards %s: "
                                 "nothing is shared", self._facts.shard_count,
                                 [one.shard for one in ordered])
            return
        text = fingerprint.compose({
            **self._facts.identity, "layout": "+".join(one.description for one in ordered)})
        name = fingerprint.namespace_name(self._options.namespace, self._facts.model, text)
        self._named = (name, text, min(one.part_bytes for one in ordered))
        self._link.want(*self._named)

    # --- A request's way ----------------------------------------------------------------------------

    def add(self, request: Any, tag: bytes) -> None:
        state = self.planner.add(request.request_id, request.num_prompt_tokens, tag)
        self._requests[request.request_id] = request
        if self._options.prefetch_on_hit and self._facts.loads:
            self._ask(state, request)

    def matched(self, request: Any, computed: int) -> tuple[Optional[int], bool]:
        """(tokens that can be loaded, whether between steps); (None, False): ask again."""
        state = self.planner.state(request.request_id)
        if state is None or not self._facts.loads:
            return 0, False
        if getattr(request, "skip_reading_prefix_cache", False):
            return 0, False
        limit = request.num_tokens if self._async else request.num_tokens - 1
        if (limit - computed) // self._facts.block_tokens < 1:
            return 0, False
        if not self._answered(state, request):
            return None, False
        tokens = self.planner.offer(state, self._chain(request, state), computed, request.num_tokens)
        return tokens, self._async and tokens > 0

    def allocated(self, request: Any, block_ids: Sequence[int], tokens: int) -> None:
        state = self.planner.state(request.request_id)
        if state is None:
            return
        asked = self._asked.get(request.request_id)
        if tokens and asked is not None and asked.lookup is not None:
            try:
                state.ticket = asked.lookup.ticket()
            except CisternError:
                state.ticket = b""
        load = self.planner.began(state, self._chain(request, state), block_ids, tokens)
        if load is not None:
            self._loads.append(load)
            self.counts.add(offered_tokens=tokens)

    def work(self, output: Any) -> StepWork:
        """What the workers are to do in the step of this scheduler output."""
        self._step += 1
        work = StepWork(self._step, self._named, idle=not output.total_num_scheduled_tokens)
        self._drop_orphans()
        work.loads, self._loads = self._loads, []
        for load in work.loads:
            self._load_steps[load.request_id] = self._step
        for request_id in sorted(getattr(output, "preempted_req_ids", None) or ()):
            self.planner.preempted(request_id)
            work.preempted.append(request_id)
        try:
            self._plan_saves(output, work)
            self.planner.note(self._step, self._progress(output))
        except Exception:  # the loads go out whatever happens: somebody waits for them
            self._logger.exception("Cistern: saves were not planned")
        return work

    def finished(self, request: Any, block_ids: Sequence[int]) -> bool:
        """The request has ended. True: its blocks stay until the workers say it is closed."""
        request_id = request.request_id
        state = self.planner.state(request_id)
        if state is None:
            return False
        keys = self._chain(request, state)
        keep = (not state.loading and self._link.namespace is not None
                and (state.planned
                     or self.planner.may_save_more(state, keys, request.num_computed_tokens)))
        self._forget(request_id, drop_state=not keep)
        if keep:
            self._finishing[request_id] = (state, keys, list(block_ids))
            self._kept.add(request_id)
        return keep

    @property
    def frees_blocks_soon(self) -> bool:
        """Blocks of requests that ended wait for their saves only: worth waiting for."""
        return bool(self._kept)

    def ended(self, report: Optional[StepReport], bad_blocks: set[int], received: set[str],
              failed: set[str], sent: set[str]) -> None:
        """What the workers said of a step."""
        self._kept -= sent
        bad = set(bad_blocks)
        for request_id in failed:
            state = self.planner.state(request_id)
            if state is not None:
                bad.update(block for block, _ in state.loading)
        if bad:
            touched = self.planner.load_failed(bad)
            self.planner.distrust()
            self._logger.warning("Cistern: %d blocks of %d requests did not come from the pool and are "
                                 "computed", len(bad), len(touched))
        elif report is not None:
            self.planner.confirm(report.step)
        if report is not None:
            self.on_this_host = report.on_this_host
            if not self._async:
                received = received | {one for one, step in self._load_steps.items()
                                       if step <= report.step}
        for request_id in received | failed:
            self._load_steps.pop(request_id, None)
            state = self.planner.state(request_id)
            if state is not None:
                self.planner.load_ended(state)

    def close(self) -> None:
        for asked in self._asked.values():
            if asked.op is not None:
                asked.op.close()
        for op in self._orphans:
            op.close()
        self._asked.clear()
        self._orphans.clear()
        self._link.close()

    # --- Keys and lookups ---------------------------------------------------------------------------

    def _chain(self, request: Any, state: RequestState) -> list[bytes]:
        """The request's keys so far; it grows with the request's full blocks."""
        chain = self._chains.setdefault(request.request_id, [])
        hashes = request.block_hashes
        for i in range(len(chain), len(hashes)):
            chain.append(state.tag + bytes(hashes[i]))
        return chain

    def _ask(self, state: RequestState, request: Any) -> None:
        namespace = self._link.namespace
        chain = self._chain(request, state)
        asked = _Asked(len(chain))
        self._asked[state.request_id] = asked
        if namespace is None or not chain or not self._breaker.closed:
            # Not asked: nothing is known to be there. If it is only the pool that is not there yet, a
            # later look may find it.
            asked.valid_until = time.monotonic() + 0.05 if namespace is None else float("inf")
            self.planner.looked_up(state, [], b"")
            return
        self.counts.add(lookups=1)
        try:
            asked.op = namespace.lookup_async(
                chain, sparse=True, shard_count=self._facts.shard_count,
                lease_time=min(2 * self._options.load_deadline + 5, _LEASE_MAX),
                deadline=self._options.lookup_deadline)
        except CisternError as error:
            self._lookup_failed(state, error)

    def _answered(self, state: RequestState, request: Any) -> bool:
        """Whether it is known what the pool has; asks if nobody has."""
        asked = self._asked.get(state.request_id)
        if asked is None or (asked.op is None and time.monotonic() > asked.valid_until):
            if asked is not None and asked.lookup is not None:
                asked.lookup.close()
            self._ask(state, request)
            asked = self._asked[state.request_id]
            wait = _FIRST_WAIT
        else:
            wait = 0.0
        if asked.op is None:
            return True
        try:
            if not asked.op.wait(wait):
                return False
            op, asked.op = asked.op, None
            lookup = op.result()
        except CisternError as error:
            asked.op = None
            self._lookup_failed(state, error)
            return True
        self._breaker.succeeded()
        asked.lookup = lookup
        # Enough of the lease has to be left for the load.
        asked.valid_until = time.monotonic() + max(lookup.lease - self._options.load_deadline, 1.0)
        self.planner.looked_up(state, lookup.present, b"")
        return True

    def _lookup_failed(self, state: RequestState, error: CisternError) -> None:
        self.counts.add(lookup_failures=1)
        self.planner.looked_up(state, [], b"")
        if self._breaker.failed():
            self._logger.warning("Cistern: the pool does not answer, requests go on without it: %s",
                                 error)

    def _drop_orphans(self) -> None:
        if self._orphans:
            done = [op for op in self._orphans if op.done()]
            self._orphans = [op for op in self._orphans if op not in done]
            for op in done:
                op.close()

    def _forget(self, request_id: str, *, drop_state: bool) -> None:
        asked = self._asked.pop(request_id, None)
        if asked is not None:
            if asked.op is not None:
                self._orphans.append(asked.op)
            if asked.lookup is not None:
                asked.lookup.close()
        self._requests.pop(request_id, None)
        self._chains.pop(request_id, None)
        self._load_steps.pop(request_id, None)
        self._loads = [load for load in self._loads if load.request_id != request_id]
        if drop_state:
            self.planner.drop(request_id)

    # --- Steps --------------------------------------------------------------------------------------

    def _plan_saves(self, output: Any, work: StepWork) -> None:
        reachable = self._facts.saves and self._link.namespace is not None
        tables = getattr(output, "kv_connector_block_state", None)
        if reachable and tables is not None:
            for request_id in output.num_scheduled_tokens:
                state = self.planner.state(request_id)
                request = self._requests.get(request_id)
                if state is None or request is None or not self.planner.wants_saving(state):
                    continue
                table = tables.get_block_ids(request_id)
                if table:
                    save = self.planner.plan_save(state, self._chain(request, state), table[0])
                    if save is not None:
                        work.saves.append(save)
        for request_id, (state, keys, block_ids) in self._finishing.items():
            save = self.planner.plan_save(state, keys, block_ids) if reachable else None
            if save is not None:
                work.saves.append(save)
            work.closing.append(request_id)
            self.planner.drop(request_id)
        self._finishing.clear()

    @staticmethod
    def _progress(output: Any) -> dict[str, int]:
        """Up to which token each request is computed in the step, whatever becomes of drafts."""
        before = {one.req_id: one.num_computed_tokens for one in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        before.update(zip(cached.req_ids, cached.num_computed_tokens))
        drafts = getattr(output, "scheduled_spec_decode_tokens", None) or {}
        return {request_id: before[request_id] + count - len(drafts.get(request_id, ()))
                for request_id, count in output.num_scheduled_tokens.items() if request_id in before}
