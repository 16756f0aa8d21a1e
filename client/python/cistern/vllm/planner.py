"""What is loaded and what is saved: the scheduler's side as plain bookkeeping. It is told what the
engine does, and does no I/O.

A block is saved once the step that filled it is *confirmed*: its output came back and no load had
failed meanwhile. Attention of a later block reads the earlier ones, so that a block computed behind
bytes that never arrived is wrong, on every rank, and under its right key it would be wrong for
everybody. What a step computed while a load failed is therefore never saved from that step's word.

A chain is a request's keys, block by block; a key covers all the tokens before its block's end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cistern.vllm.messages import Load, Save

NULL_BLOCK = 0  # the engine's placeholder: a block that is not there
_STEPS_KEPT = 256  # notes of steps that nobody reported: dropped behind so many


@dataclass
class RequestState:
    """One request, from its arrival to its end."""

    request_id: str
    prompt_tokens: int
    tag: bytes = b""  # before each key: what the engine's hashes do not tell apart
    present: list[bool] = field(default_factory=list)  # of the chain, as last looked up
    ticket: bytes = b""
    failed: set[bytes] = field(default_factory=set)  # keys that were promised and did not come
    offered_from: int = 0  # block, and how many blocks, of the last answer
    offered: int = 0
    loading: list[tuple[int, bytes]] = field(default_factory=list)  # (block id, key) under way
    loading_from: int = 0
    saved: int = 0  # blocks before this one need no saving any more
    confirmed: int = 0  # tokens whose bytes are in the blocks
    epoch: int = 0  # raised when what was noted for it counts no more
    planned: bool = False  # something of it was handed to the workers to save


class Planner:
    """For one engine. Not thread-safe: the engine's scheduler has one thread."""

    def __init__(self, block_tokens: int, *, load_async: bool, saves: bool, store_threshold: int = 0,
                 prompt_only: bool = False) -> None:
        self.block_tokens = block_tokens
        self.load_async = load_async
        self.saves = saves
        self.store_threshold = store_threshold
        self.prompt_only = prompt_only  # drafted tokens may be taken back: only the prompt is sure
        self._states: dict[str, RequestState] = {}
        self._notes: dict[int, dict[str, tuple[int, int]]] = {}  # step: request: (epoch, tokens)

    def state(self, request_id: str) -> RequestState | None:
        return self._states.get(request_id)

    def add(self, request_id: str, prompt_tokens: int, tag: bytes = b"") -> RequestState:
        return self._states.setdefault(request_id, RequestState(request_id, prompt_tokens, tag))

    def drop(self, request_id: str) -> None:
        self._states.pop(request_id, None)

    # --- Loading -----------------------------------------------------------------------------------

    def looked_up(self, state: RequestState, present: Sequence[bool], ticket: bytes) -> None:
        state.present, state.ticket = list(present), ticket

    def offer(self, state: RequestState, keys: Sequence[bytes], computed: int, tokens: int) -> int:
        """How many tokens behind the first `computed` can be loaded. Changes nothing but what the next
        began() refers to: it may be asked any number of times."""
        state.offered_from = state.offered = 0
        if computed % self.block_tokens:
            return 0
        first = computed // self.block_tokens
        # A load that the step itself waits for must leave it a token to compute. One that is done
        # between steps may cover all: the engine computes the last token again.
        limit = (tokens if self.load_async else tokens - 1) // self.block_tokens
        end = first
        while (end < min(limit, len(keys), len(state.present)) and state.present[end]
               and keys[end] not in state.failed):
            end += 1
        state.offered_from, state.offered = first, end - first
        return state.offered * self.block_tokens

    def began(self, state: RequestState, keys: Sequence[bytes], block_ids: Sequence[int],
              tokens: int) -> Load | None:
        """The engine gave the request blocks, of which those of `tokens` tokens, that were offered,
        are to be loaded."""
        self._restart(state)
        state.loading = []
        count = min(tokens // self.block_tokens, state.offered)
        if not count:
            return None
        first = state.offered_from
        chosen = list(zip(block_ids[first:first + count], keys[first:first + count]))
        state.loading, state.loading_from = chosen, first
        return Load(state.request_id, [key for _, key in chosen], [block for block, _ in chosen],
                    state.ticket)

    def load_ended(self, state: RequestState) -> None:
        state.loading = []

    def load_failed(self, bad_blocks: set[int]) -> list[str]:
        """Blocks did not arrive. Their keys are not offered to these requests again, and are saved
        anew when they have been computed. Answers whose loads they were."""
        touched = []
        for state in self._states.values():
            bad = [i for i, (block, _) in enumerate(state.loading) if block in bad_blocks]
            if not bad:
                continue
            touched.append(state.request_id)
            for i in bad:
                state.failed.add(state.loading[i][1])
                at = state.loading_from + i
                if at < len(state.present):
                    state.present[at] = False
            state.saved = min(state.saved, state.loading_from + bad[0])
        return touched

    # --- Saving ------------------------------------------------------------------------------------

    def note(self, step: int, progress: Mapping[str, int]) -> None:
        """In this step the engine computes each request up to so many tokens."""
        self._notes[step] = {request_id: (self._states[request_id].epoch, tokens)
                             for request_id, tokens in progress.items() if request_id in self._states}
        for old in [one for one in self._notes if one < step - _STEPS_KEPT]:
            del self._notes[old]

    def confirm(self, step: int) -> None:
        """The step is over, and every load before it succeeded."""
        for request_id, (epoch, tokens) in self._notes.pop(step, {}).items():
            state = self._states.get(request_id)
            if state is not None and state.epoch == epoch:
                state.confirmed = max(state.confirmed, tokens)

    def distrust(self) -> None:
        """A load failed in a step: what that one, and those already under way, computed counts for
        nobody. The engine computes anew what was behind the load; the next steps say how far."""
        self._notes.clear()

    def preempted(self, request_id: str) -> None:
        """Its blocks are gone; it will be given others."""
        state = self._states.get(request_id)
        if state is not None:
            self._restart(state)
            state.loading = []

    def _restart(self, state: RequestState) -> None:
        state.epoch += 1
        state.confirmed = 0

    def wants_saving(self, state: RequestState) -> bool:
        return self.saves and state.prompt_tokens >= self.store_threshold

    def plan_save(self, state: RequestState, keys: Sequence[bytes],
                  block_ids: Sequence[int]) -> Save | None:
        """What can be saved of the request now and was not yet. Hands it out once."""
        if not self.wants_saving(state):
            return None
        tokens = state.confirmed
        if self.prompt_only:
            tokens = min(tokens, state.prompt_tokens)
        end = min(tokens // self.block_tokens, len(keys), len(block_ids))
        chosen = [i for i in range(state.saved, end)
                  if block_ids[i] != NULL_BLOCK and not (i < len(state.present) and state.present[i])]
        state.saved = max(state.saved, end)
        if not chosen:
            return None
        state.planned = True
        # One chain, one store, if it can be: its chunks are read together.
        affinity = int.from_bytes(hashlib.sha256(keys[0]).digest()[:8], "little") or 1
        return Save(state.request_id, [keys[i] for i in chosen], [block_ids[i] for i in chosen],
                    affinity)

    def may_save_more(self, state: RequestState, keys: Sequence[bytes], tokens: int) -> bool:
        """Whether a request that ends with `tokens` computed has blocks that are not saved yet."""
        return self.wants_saving(state) and state.saved < min(tokens // self.block_tokens, len(keys))
