"""What the scheduler's side and the workers tell each other; pickled by vLLM."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Load:
    """Chunks to get into blocks, chunk i into block i."""

    request_id: str
    keys: list[bytes]
    block_ids: list[int]
    ticket: bytes = b""  # of the lookup that found them; empty: ask the master


@dataclass
class Save:
    """Blocks whose bytes will not change as long as the request holds them."""

    request_id: str
    keys: list[bytes]
    block_ids: list[int]
    affinity: int = 0  # of the request's chain: chunks that are read together


@dataclass
class StepWork:
    """To each worker, once a step."""

    step: int
    # Name, fingerprint, part bytes; None until the workers' caches are known: then there is no work.
    namespace: tuple[str, str, int] | None = None
    loads: list[Load] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    # Finished requests whose blocks are kept until the worker says that their saves are done.
    closing: list[str] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)  # their blocks are about to be reused
    idle: bool = False  # nothing is computed in this step


@dataclass
class StepReport:
    """From the workers, once a step, merged over them."""

    step: int
    on_this_host: bool = False  # every store that was reached so far is

    def merge(self, other: StepReport) -> StepReport:
        # A step is over when the last worker says so.
        return StepReport(min(self.step, other.step), self.on_this_host and other.on_this_host)
