"""The command ``cistern dev``."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import cistern
from cistern import dev

COMMAND = [sys.executable, "-m", "cistern", "dev", "--memory", "64MiB"]


def test_sizes():
    assert dev.parse_bytes("2GiB") == 2 << 30 and dev.parse_bytes(" 512mib") == 512 << 20
    assert dev.parse_bytes("4096") == 4096
    for bad in ("", "GiB", "2GB", "1.5GiB", "-1", "2XiB"):
        with pytest.raises(argparse.ArgumentTypeError):
            dev.parse_bytes(bad)
    assert 64 << 20 <= dev.default_bytes("/dev/shm") <= 8 << 30


def test_a_command_gets_a_pool_and_nothing_is_left(tmp_path):
    script = ("import cistern, os; c = cistern.connect(os.environ['CISTERN_MASTER'], "
              "token_file=os.environ['CISTERN_TOKEN_FILE']); c.ping(); "
              "print(os.path.dirname(os.environ['CISTERN_TOKEN_FILE'])); raise SystemExit(5)")
    done = subprocess.run([*COMMAND, "--", sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 5, done.stderr
    folder = done.stdout.strip()
    assert folder.startswith("/") and not os.path.exists(folder)


@pytest.fixture
def running():
    """A pool of the command's own; killed if a test fails before it has ended it."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()  # so that it removes what it holds
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_how_to_reach_it_and_ends_on_a_signal(running, number):
    text = ""
    while "cisternctl" not in text:
        line = running.stdout.readline()
        assert line, text
        text += line
    master, token = re.search(r'connect\("(.*)", token_file="(.*)"\)', text).groups()
    with cistern.connect(master, token_file=token) as client:
        client.ping()
    command = re.search(r"^ +(cisternctl .*)$", text, re.MULTILINE)[1].split()
    stats = subprocess.run([dev.program("cisternctl"), *command[1:]], capture_output=True,
                           text=True, timeout=30, check=False)
    assert stats.returncode == 0 and "store-0" in stats.stdout, stats.stderr
    transfer = json.loads(re.search(r"--kv-transfer-config '(.*)'", text)[1])
    assert transfer["kv_connector"] == "CisternConnector"
    assert transfer["kv_connector_extra_config"] == {"master_address": master, "pool_token_file": token}
    # Engines without a connector are not named.
    assert not re.search("sglang|lmcache|mooncake", text, re.IGNORECASE)
    running.send_signal(number)
    assert running.wait(30) == 128 + number
    assert not os.path.exists(token)


def test_a_daemon_that_dies_ends_it_and_is_named():
    with pytest.raises(dev.DevError, match="store-0 ended with -9"):
        with dev.running(64 << 20) as pool:
            os.kill(pool.daemons[1][1].pid, signal.SIGKILL)
            end = time.monotonic() + 20
            while time.monotonic() < end:
                pool.check()
                time.sleep(0.01)
    assert not pool.dir.exists() and not pool.segment_dir.exists()


def test_impossible_sizes_are_refused(capfd):
    from cistern.__main__ import main
    assert main(["dev", "--memory", "1MiB"]) == 1
    assert "8MiB" in capfd.readouterr().err
