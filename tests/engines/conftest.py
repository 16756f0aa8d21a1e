"""Engines and pools for the tests. One engine runs at a time: they are large."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from cistern import dev

HERE = Path(__file__).parent
START_SECONDS = 240.0
ANSWER_SECONDS = 180.0
BLOCK = 128  # tokens; vLLM's on CPUs


class Engine:
    """A vLLM engine in a process of its own."""

    def __init__(self, model: Path, connector: dict[str, Any] | None = None, *, log: Path,
                 own_core: bool = False, **llm: Any) -> None:
        """`own_core`: the engine's core in a process beside, as vLLM does it by itself."""
        job = {"model": str(model), "connector": connector, "llm": llm}
        read, write = os.pipe()
        environment = dict(
            os.environ, HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_CPU_KVCACHE_SPACE="1",
            VLLM_ENABLE_V1_MULTIPROCESSING=str(int(own_core)), VLLM_CPU_OMP_THREADS_BIND="nobind",
            OMP_NUM_THREADS=os.environ.get("CISTERN_ENGINE_THREADS", "2"), TOKENIZERS_PARALLELISM="false")
        self.log = log
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "engine.py"), str(write), json.dumps(job)],
                stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment, pass_fds=(write,),
                cwd=log.parent)
        os.close(write)
        self._answers = read
        self._rest = b""
        try:
            self.started = self.answer(START_SECONDS)["ready"]
        except BaseException:
            self.close()
            raise

    def answer(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            if not select.select([self._answers], [], [], max(end - time.monotonic(), 0))[0]:
                raise AssertionError(f"the engine does not answer:\n{self.tail()}")
            data = os.read(self._answers, 1 << 16)
            if not data:
                raise AssertionError(f"the engine has ended:\n{self.tail()}")
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        assert "error" not in found, f"{found['error']}\n{self.tail()}"
        return found

    def tell(self, do: str, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        self.tell(do, **more)
        return self.answer()

    def generate(self, *prompts: list[int], **more: Any) -> dict[str, Any]:
        return self.ask("generate", prompts=prompts, **more)

    def again(self, *prompts: list[int], **more: Any) -> dict[str, Any]:
        """Without what the engine itself has kept."""
        assert self.ask("reset")["reset"]
        return self.generate(*prompts, **more)

    def metrics(self) -> dict[str, float]:
        found: dict[str, float] = self.ask("metrics")["metrics"]
        return found

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def said(self, words: str) -> bool:
        return words in self.log.read_text(errors="replace")

    def close(self) -> None:
        """Ends it as a user would; it has to end."""
        if self.process.poll() is None:
            try:
                self.tell("quit")
                self.process.wait(60)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
        self.process.wait()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        assert self.process.returncode == 0, self.tail()


@pytest.fixture(scope="session")
def models() -> Path:
    """Made once; kept beside the virtual environment."""
    where = Path(os.environ.get("CISTERN_ENGINE_MODELS", Path(tempfile.gettempdir()) / "engine-models"))
    subprocess.run([sys.executable, str(HERE / "models.py"), str(where)], check=True)
    return where


def make_engine(model: Path, pool: dev.DevPool | None, folder: Path, *, policy: str = "recompute",
                role: str = "kv_both", llm: dict[str, Any] | None = None, own_core: bool = False,
                **extra: Any) -> Engine:
    """An engine with the connector, or, without a pool, one as it is."""
    connector = None
    if pool is not None:
        connector = {
            "kv_connector": "CisternConnector", "kv_connector_module_path": "cistern.vllm",
            "kv_role": role, "kv_load_failure_policy": policy,
            "kv_connector_extra_config": {
                "master_address": pool.master, "pool_token_file": pool.token_file, **extra}}
    options: dict[str, Any] = {"max_model_len": 4096, "max_num_batched_tokens": 512, "dtype": "float32",
                               **(llm or {})}
    return Engine(model, connector, log=folder / "engine.log", own_core=own_core, **options)


@pytest.fixture
def start(models: Path, tmp_path: Path) -> Any:
    """start(model, pool or None, ...): see make_engine."""
    return lambda model, pool, **more: make_engine(models / model, pool, tmp_path, **more)


def stats(pool: dev.DevPool) -> dict[str, Any]:
    done = subprocess.run(
        [dev.program("cisternctl"), "--master", pool.admin, "--token-file", pool.token_file, "-o",
         "json", "stats"], capture_output=True, check=True, timeout=30)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def eventually(what: Any, seconds: float = 20.0) -> Any:
    end = time.monotonic() + seconds
    while True:
        found = what()
        if found or time.monotonic() > end:
            return found
        time.sleep(0.05)


def stored(pool: dev.DevPool) -> int:
    """Chunks in the pool."""
    return int(stats(pool)["pool"]["chunk_count"])


def store_of(pool: dev.DevPool) -> subprocess.Popen[bytes]:
    return next(process for name, process in pool.daemons if name == "store-0")


def stop(pid: int) -> None:
    """Stops a process, and waits until all its threads stand still."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        states = {(task / "stat").read_text().rsplit(")", 1)[1].split()[0]
                  for task in Path(f"/proc/{pid}/task").iterdir()}
        if states == {"T"}:
            return
        time.sleep(0.001)
    raise AssertionError("the process does not stop")
