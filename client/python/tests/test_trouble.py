"""Pools that are not there, processes that end or fork, objects used after their end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import CHUNK, keys_of, pattern

import cistern
from cistern import Code, dev


def test_no_pool():
    started = time.monotonic()
    with pytest.raises(cistern.CisternError, match="127.0.0.1:1") as error:
        cistern.connect("127.0.0.1:1", deadline=0.3)
    assert error.value.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
    assert time.monotonic() - started < 5


def test_wrong_token(pool, tmp_path):
    with pytest.raises(cistern.CisternError) as error:
        cistern.connect(pool.master)
    assert error.value.code == Code.PERMISSION_DENIED
    with pytest.raises(cistern.CisternError, match="nowhere"):
        cistern.connect(pool.master, token_file=str(tmp_path / "nowhere"))
    with pytest.raises(KeyError):
        cistern.connect(pool.master, wire="pigeon")


def test_wrong_fingerprint(client):
    client.namespace("claimed", "weights=1")
    with pytest.raises(cistern.CisternError, match="weights=1.*weights=2|weights=2.*weights=1") as error:
        client.namespace("claimed", "weights=2")
    assert error.value.code == Code.FAILED_PRECONDITION
    with pytest.raises(ValueError, match="NUL"):
        client.namespace("a\0b", "v1")


def test_a_closed_client_says_so(client, ns, buffer):
    keys, spans = ns.keys(keys_of(1)), buffer.spans(CHUNK, 1)
    op = ns.get_async(keys, spans)
    client.close()
    client.close()
    assert op.wait(20)
    for call in (lambda: ns.put(keys, spans), lambda: ns.get(keys, spans), lambda: ns.lookup(keys)):
        with pytest.raises(cistern.CisternError, match="clos") as error:
            call()
        assert error.value.code == Code.FAILED_PRECONDITION
    with pytest.raises(cistern.CisternError):
        client.ping()
    buffer.close()
    ns.close()
    with pytest.raises(cistern.CisternError):
        ns.exists(keys)


def test_a_thousand_keys_that_are_not_there(ns, buffer):
    keys = ns.keys(keys_of(1000, "absent"))
    assert ns.lookup(keys).leading_run == 0
    assert set(ns.get(keys, [buffer.span(0, CHUNK)] * 1000).codes) <= {
        Code.NOT_FOUND, Code.INVALID_ARGUMENT}  # one target for all of them overlaps


def test_two_clients_put_the_same_at_once(pool, ns, buffer):
    with cistern.connect(pool.master, token_file=pool.token_file) as other:
        there, theirs = other.namespace(ns.name, "v1"), other.allocate(8 * CHUNK)
        for i in range(8):
            buffer.view[i * CHUNK:(i + 1) * CHUNK] = theirs.view[i * CHUNK:(i + 1) * CHUNK] = pattern(i)
        ops = [one.put_async(keys_of(8), memory.spans(CHUNK, 8))
               for one, memory in ((ns, buffer), (there, theirs))]
        for op in ops:
            assert set(op.result().codes) <= {Code.OK, Code.PRESENT, Code.IN_PROGRESS}
        assert ns.get(keys_of(8), theirs_spans := buffer.spans(CHUNK, 16)[8:]).ok
        assert buffer.view[8 * CHUNK:16 * CHUNK] == b"".join(pattern(i) for i in range(8))
        assert len(theirs_spans) == 8


def test_a_forked_child_is_told_and_connects_anew(pool, client, ns, buffer):
    keys = ns.keys(keys_of(1))
    op = ns.lookup_async(keys)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        outcome = 1
        try:
            for call in (client.ping, lambda: ns.exists(keys), op.result):
                try:
                    call()
                    os._exit(2)
                except cistern.CisternError as error:
                    assert error.code == Code.FAILED_PRECONDITION and "fork" in str(error)
            buffer.close()
            client.close()
            with cistern.connect(pool.master, token_file=pool.token_file) as anew:
                anew.ping()
            outcome = 0
        finally:
            os._exit(outcome)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert op.result().leading_run == 0
    client.ping()


def stop(pid):
    """Stops a process, and waits until all its threads stand still."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + 20
    tasks = f"/proc/{pid}/task"
    while time.monotonic() < end:
        states = []
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/stat", encoding="ascii", errors="replace") as stat:
                states.append(stat.read().rsplit(")", 1)[1].split()[0])
        if set(states) == {"T"}:
            return
        time.sleep(0.001)
    raise AssertionError("the process does not stop")


def run_script(pool, text, **more):
    head = f"""
        import os, sys, threading, time
        import cistern
        client = cistern.connect({pool.master!r}, token_file={pool.token_file!r})
        ns = client.namespace("scripts", "v1")
        buffer = client.allocate(64 << 20)
        keys = ["big-%d" % i for i in range(16)]
        spans = buffer.spans(4 << 20, 16)
    """
    return subprocess.run([sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(text)],
                          capture_output=True, text=True, timeout=60, check=False, **more)


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "raise SystemExit(3)", "os._exit(3)"])
def test_the_interpreter_ends_with_transfers_in_flight(pool, end):
    done = run_script(pool, f"""
        ops = [ns.put_async(keys, spans), ns.get_async(keys, spans), ns.lookup_async(keys)]
        cistern.log_to(__import__("logging").getLogger())
        {end}
    """)
    assert done.returncode == (0 if end == "pass" else 3), done.stderr
    assert done.stderr == ""


def test_the_interpreter_ends_while_a_thread_is_inside(pool):
    done = run_script(pool, """
        def work():
            try:
                while True:
                    ns.get(keys, spans)
            except cistern.CisternError:
                pass  # closed under us
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
    """)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_ends_a_wait():
    with dev.running(128 << 20) as pool:
        done = run_script(pool, f"""
            import signal
            signal.signal(signal.SIGINT, signal.default_int_handler)
            assert ns.put(keys, spans, wait_visible=True).ok
            os.kill({pool.daemons[1][1].pid}, signal.SIGSTOP)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            started = time.monotonic()
            try:
                ns.get_async(keys, spans, deadline=50).wait()
            except KeyboardInterrupt:
                sys.exit(7 if time.monotonic() - started < 20 else 8)
        """)
        os.kill(pool.daemons[1][1].pid, signal.SIGCONT)
    assert done.returncode == 7, done.stderr


def test_lines_reach_a_logger(caplog):
    cistern.log_to(logging.getLogger("cistern"), logging.DEBUG)
    try:
        with caplog.at_level(logging.DEBUG, "cistern"):
            with dev.running(128 << 20) as pool:
                for socket in pool.dir.rglob("*.sock*"):  # then the store is reached by tcp
                    socket.unlink()
                with cistern.connect(pool.master, token_file=pool.token_file) as client:
                    buffer, ns = client.allocate(CHUNK), client.namespace("n", "v1")
                    assert ns.put(["k"], [buffer.span(0, CHUNK)]).ok
    finally:
        cistern.log_to(None)
    assert all(record.name == "cistern" for record in caplog.records)
    # Besides, one line tells whether there is RDMA.
    (record,) = (record for record in caplog.records if record.levelno > logging.INFO)
    assert record.levelno == logging.WARNING
    assert "is on this host but is not reached by shared memory" in record.getMessage()


def test_a_store_that_dies_costs_misses_only():
    with dev.running(128 << 20) as pool:
        with cistern.connect(pool.master, token_file=pool.token_file, deadline=2) as client:
            ns, buffer = client.namespace("n", "v1"), client.allocate(16 * CHUNK)
            keys, spans = ns.keys(keys_of(8)), buffer.spans(CHUNK, 8)
            assert ns.put(keys, spans, wait_visible=True).ok
            stop(pool.daemons[1][1].pid)  # slow without end
            started = time.monotonic()
            result = ns.get(keys, spans, deadline=0.5)
            assert time.monotonic() - started < 5
            assert not any(code == Code.OK for code in result.codes)
            os.kill(pool.daemons[1][1].pid, signal.SIGKILL)
            result = ns.get(keys, spans, deadline=1)
            assert set(result.codes) <= {Code.UNAVAILABLE, Code.NOT_FOUND, Code.DEADLINE_EXCEEDED}
