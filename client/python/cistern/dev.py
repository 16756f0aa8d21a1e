"""``cistern dev``: a whole pool on this host, for trying things out.

Starts the daemons that came with the package (or those of ``CISTERN_BIN_DIR``) on loopback, with a
token of its own, in temporary folders that go when it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_READY_SECONDS = 60.0
_STOP_SECONDS = 10.0
_UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_MIN_BYTES = 64 << 20
_SEGMENT_MAX = 64 << 30
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DevError(Exception):
    """The pool could not be started, or has ended; the text says why."""


def program(name: str) -> str:
    """The path of a program of Cistern: of CISTERN_BIN_DIR, the package, or the PATH."""
    places = [os.environ.get("CISTERN_BIN_DIR", ""), str(Path(__file__).parent / "bin")]
    for folder in filter(None, places):
        path = Path(folder) / name
        if os.access(path, os.X_OK):
            return str(path)
    # The command that pip installs under this name would find itself.
    ours = str(Path(sys.executable).parent / name)
    found = shutil.which(name)
    if found is None or found == ours:
        raise DevError(f"no {name} in the package nor in the PATH; CISTERN_BIN_DIR names its folder")
    return found


def parse_bytes(text: str) -> int:
    """"2GiB", or a number of bytes."""
    upper = text.strip().upper()
    digits = upper.rstrip("KMGTIB")
    unit = upper[len(digits):]
    if not digits.isdigit() or unit not in _UNITS:
        raise argparse.ArgumentTypeError(f"not a size: {text!r}; write 512MiB, 2GiB")
    return int(digits) * _UNITS[unit]


def default_bytes(segment_parent: str) -> int:
    """A quarter of the free memory, a half of the room for segments, 8 GiB at most."""
    available = 4 << 30
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) << 10
    room = shutil.disk_usage(segment_parent).free
    return max(min(available // 4, room // 2, 8 << 30), _MIN_BYTES) >> 20 << 20


def _free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@dataclass
class DevPool:
    """A running pool. ``stop`` ends it and removes its folders."""

    dir: Path
    segment_dir: Path
    master: str = ""  # what clients dial
    admin: str = ""  # what cisternctl dials
    daemons: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)

    @property
    def token_file(self) -> str:
        return str(self.dir / "token")

    def check(self) -> None:
        """DevError with the end of its log if a daemon has ended."""
        for name, process in self.daemons:
            if process.poll() is not None:
                raise DevError(f"{name} ended with {process.returncode}:\n{self.log_tail(name)}")

    def log_tail(self, name: str) -> str:
        text = (self.dir / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-20:])

    def stop(self) -> None:
        for _, process in reversed(self.daemons):
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.segment_dir, ignore_errors=True)
        shutil.rmtree(self.dir, ignore_errors=True)


def _launch(pool: DevPool, binary: str, name: str, *more: str) -> subprocess.Popen[bytes]:
    with open(pool.dir / f"{name}.log", "ab") as log:
        return subprocess.Popen(
            [program(binary), "--config", str(pool.dir / f"{name}.toml"), *more],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,  # a terminal's Ctrl-C reaches us only: we end them in order
        )


def _pause(pool: DevPool, until: float) -> None:
    pool.check()
    if time.monotonic() > until:
        logs = "\n".join(f"{name}:\n{pool.log_tail(name)}" for name, _ in pool.daemons)
        raise DevError(f"the pool was not ready in time; the ends of the logs:\n{logs}")
    time.sleep(0.02)


def _await_endpoints(pool: DevPool, folder: Path, until: float) -> dict[str, str]:
    while True:
        with contextlib.suppress(OSError, ValueError):
            loaded: dict[str, str] = json.loads((folder / "endpoints.json").read_text())
            return loaded
        _pause(pool, until)


def _serving(pool: DevPool) -> int:
    stats = subprocess.run(
        [program("cisternctl"), "--master", pool.admin, "--token-file", pool.token_file,
         "-o", "json", "stats"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    if stats.returncode != 0:
        return 0
    return sum(1 for store in json.loads(stats.stdout)["stores"] if store["state"] == "serving")


def _start_master(pool: DevPool, port: int, until: float) -> None:
    data = pool.dir / "master"
    data.mkdir()
    (pool.dir / "master.toml").write_text(
        f'listen_address = "127.0.0.1"\ndata_port = {port}\ngrpc_port = 0\nhttp_port = 0\n'
        f'data_dir = "{data}"\npool_token_file = "{pool.token_file}"\n')
    if _launch(pool, "cistern-master", "master", "--init").wait(_READY_SECONDS) != 0:
        raise DevError(f"cistern-master --init failed:\n{pool.log_tail('master')}")
    pool.daemons.append(("master", _launch(pool, "cistern-master", "master")))
    endpoints = _await_endpoints(pool, data, until)
    pool.master, pool.admin = endpoints["data"], endpoints["grpc"]


def _start_store(pool: DevPool, index: int, store_bytes: int) -> None:
    name = f"store-{index}"
    data, segments = pool.dir / name, pool.segment_dir / name
    data.mkdir()
    segments.mkdir()
    count = -(-store_bytes // _SEGMENT_MAX)
    sizes = f"[[segment]]\nsize = {store_bytes // count >> 12 << 12}\n" * count
    (pool.dir / f"{name}.toml").write_text(
        f'listen_address = "127.0.0.1"\ndata_port = 0\nhttp_port = 0\nname = "{name}"\n'
        f'master_address = "{pool.admin}"\ndata_dir = "{data}"\nsegment_dir = "{segments}"\n'
        f'pool_token_file = "{pool.token_file}"\n{sizes}')
    pool.daemons.append((name, _launch(pool, "cistern-store", name)))


def start(pool_bytes: int | None = None, stores: int = 1, port: int = 0,
          segment_parent: str = "/dev/shm") -> DevPool:
    """Starts a pool. `port`: the master's, 0 = any free one. Raises DevError."""
    total = default_bytes(segment_parent) if pool_bytes is None else pool_bytes
    if stores < 1 or total // stores < 8 << 20:
        raise DevError("a pool has one store at least, and each store 8MiB")
    pool = DevPool(Path(tempfile.mkdtemp(prefix="cistern-dev-")),
                   Path(tempfile.mkdtemp(prefix="cistern-dev-", dir=segment_parent)))
    try:
        until = time.monotonic() + _READY_SECONDS
        _start_master(pool, port, until)
        for i in range(stores):
            _start_store(pool, i, total // stores)
        while _serving(pool) < stores:
            _pause(pool, until)
    except BaseException:
        pool.stop()
        raise
    return pool


@contextlib.contextmanager
def running(pool_bytes: int | None = None, stores: int = 1) -> Iterator[DevPool]:
    """A pool for the length of a ``with`` block."""
    pool = start(pool_bytes, stores)
    try:
        yield pool
    finally:
        pool.stop()


def _words(pool: DevPool, total: int, stores: int) -> str:
    """What is printed: how to reach the pool. Each engine that has a connector gets a paragraph."""
    vllm = json.dumps({
        "kv_connector": "CisternConnector", "kv_connector_module_path": "cistern.vllm",
        "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"master_address": pool.master,
                                      "pool_token_file": pool.token_file}})
    of_stores = f"{stores} store{'s' if stores > 1 else ''}"
    return f"""The pool is up: {total >> 20} MiB in {of_stores}, master {pool.master}.
Logs and the token are in {pool.dir}. Ctrl-C ends it and removes what it holds.

vLLM:
    --kv-transfer-config '{vllm}'
From Python:
    client = cistern.connect("{pool.master}", token_file="{pool.token_file}")
From C:
    .master_address = "{pool.master}", .pool_token_file = "{pool.token_file}"
On the command line:
    cisternctl --master {pool.admin} --token-file {pool.token_file} stats
"""


class _Ended(Exception):
    """A signal asked us to end."""


def _end(number: int, _: object) -> None:
    raise _Ended(number)


def _wait(pool: DevPool, command: Sequence[str]) -> int:
    """Until a signal, a daemon's end, or that of the command, whose exit code it answers."""
    if not command:
        while True:
            pool.check()
            time.sleep(0.2)
    environment = dict(os.environ, CISTERN_MASTER=pool.master, CISTERN_TOKEN_FILE=pool.token_file,
                       CISTERN_ADMIN=pool.admin)
    with subprocess.Popen(command, env=environment) as child:
        try:
            code = child.wait()
            return code if code >= 0 else 128 - code
        except _Ended:
            child.terminate()
            raise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory", type=parse_bytes, metavar="SIZE", default=None,
                        help="of all stores, as 2GiB; default a quarter of what is free, 8GiB at most")
    parser.add_argument("--stores", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--port", type=int, default=None, metavar="PORT",
                        help="the master's; default 7600, or any free one where that is taken")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND",
                        help="run it with CISTERN_MASTER and CISTERN_TOKEN_FILE set, and end with it")


def run(arguments: argparse.Namespace) -> int:
    """The command. Raises DevError."""
    command = arguments.command
    if command[:1] == ["--"]:
        command = command[1:]
    port = arguments.port
    if port is None:
        port = 7600 if not command and _free(7600) else 0
    total = arguments.memory if arguments.memory is not None else default_bytes("/dev/shm")
    for number in _SIGNALS:
        signal.signal(number, _end)
    pool: DevPool | None = None
    try:
        pool = start(total, arguments.stores, port)
        if not command:
            print(_words(pool, total, arguments.stores), flush=True)
        return _wait(pool, command)
    except _Ended as ended:
        return 128 + int(ended.args[0])
    finally:
        # Nothing keeps us from cleaning up.
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if pool is not None:
            pool.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """As a script, without the package: what the repository's own tests do."""
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__)
    add_arguments(parser)
    try:
        return run(parser.parse_args(arguments))
    except DevError as error:
        print(f"dev.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
