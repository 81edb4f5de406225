# SPDX-License-Identifier: Apache-2.0
"""The interpreter around the calls: threads, signals, fork, a server that ends, gc."""

import _thread
import asyncio
import gc
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import phasor
from phasor import testing

LLAMA = phasor.Spec("llama-3")


def run(code, *arguments, **kwargs):
    """Runs a program of its own, whose last line is what it found."""
    program = textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *arguments], capture_output=True, text=True, timeout=120, **kwargs
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture
def silent_server():
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


CALLS = {
    "apply_rope": "client.apply_rope(np.zeros((4, 1, 128), 'f4'), positions=range(4), spec='llama-3')",
    "encode": "client.encode('llama-3', range(4), form='cos_sin')",
    "health": "client.health()",
    "stream": "s = client.stream(); s.apply_rope(np.zeros((4, 1, 128), 'f4'), positions=range(4), spec='llama-3'); next(iter(s))",
    "stream_write": "s = client.stream(); [s.apply_rope(np.zeros((512, 8, 128), 'f4'), positions=range(512), spec='llama-3') for _ in range(8)]",
    "large": "client.apply_rope_large(np.zeros((4, 1, 128), 'f4'), positions=range(4), spec='llama-3')",
    "tables": "client.tables['x'] = np.zeros((4, 8), 'f4')",
}


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_a_waiting_call(silent_server, call):
    waited = run(
        f"""
        import os, signal, sys, threading, time
        import numpy as np, phasor
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
        client = phasor.Client(sys.argv[1], timeout=60, staging_bytes=0)
        sent = []
        def interrupt():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.3, interrupt).start()
        try:
            {CALLS[call]}
        except KeyboardInterrupt:
            print(time.monotonic() - sent[0])
        """,
        silent_server,
    )
    # It takes at most 60 ms by construction. The limit tells that apart from the deadline, on a slow machine too.
    assert float(waited) < 40


def test_signal_handlers_run_while_a_call_waits(silent_server):
    seen = run(
        """
        import os, signal, sys, threading
        import phasor
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append("handled"))
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        try:
            phasor.Client(sys.argv[1], timeout=1, max_attempts=1).health()
        except (TimeoutError, ConnectionError):
            print(*seen)
        """,
        silent_server,
    )
    assert seen == "handled"


def test_other_threads_run_while_a_call_waits(silent_server):
    steps, done = [], threading.Event()

    def wait():
        with pytest.raises((TimeoutError, ConnectionError)):
            phasor.Client(silent_server, timeout=1, max_attempts=1).health()
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not done.is_set():
        steps.append(done.wait(0.005))
    thread.join()
    assert len(steps) > 5


def test_many_threads_share_a_client(client):
    x = np.random.default_rng(8).standard_normal((64, 5, 2, 128)).astype(np.float32)
    wanted = phasor.apply_rope(x, positions=range(5), spec=LLAMA)
    failures = []

    def work(i):
        try:
            for _ in range(20):
                assert client.apply_rope(x[i], positions=range(5), spec=LLAMA).tobytes() == wanted[i].tobytes()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_gc_storms_do_not_disturb_calls(remote):
    stop = threading.Event()

    def storm():
        while not stop.is_set():
            gc.collect()

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        for step in range(100):
            x = np.full((3, 1, 128), step, np.float32)
            y = remote.apply_rope(x, positions=[0, 0, 0], spec=LLAMA)
            del x
            assert (y == step).all()
    finally:
        stop.set()
        thread.join()


# --- fork and spawn ---

FORK = """
    import os, sys, numpy as np, phasor
    {parent}
    pid = os.fork()
    if pid == 0:
        try:
            {child}
        except BaseException as error:
            print(type(error).__name__, error)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
    {after}
"""


def forked(parent, child, after="pass", *arguments):
    return run(FORK.format(parent=parent, child=child, after=after), *arguments)


def test_calls_in_process_work_after_fork():
    assert forked("a = phasor.encode('llama-3', range(3), form='cos')", "print((phasor.encode('llama-3', range(3), form='cos') == a).all())") == "True"


def test_a_client_with_threads_says_so_after_fork():
    call = "c.apply_rope(np.zeros((64, 8, 128)), positions=range(64), spec='llama-3')"
    assert forked(f"c = phasor.Client(threads=2); {call}", call).startswith("FailedPrecondition client: this client's threads")


def test_a_connection_says_so_after_fork_and_goes_on_in_the_parent(phasor_server):
    parent = "c = phasor.Client(sys.argv[1]); c.health()"
    said = forked(parent, "print(); c.health()", "pass", phasor_server.target)
    assert said.startswith("FailedPrecondition client: this client was connected before fork()")
    said = forked(parent, "print(); phasor.Client(sys.argv[1]).health()", "pass", phasor_server.target)
    assert said.startswith("FailedPrecondition client: this process connected to a server before fork()")
    assert forked(parent, "c = None", "print(c.health())", phasor_server.target) == "True"


def test_shared_memory_stays_with_the_parent_when_a_child_frees_its_copy(phasor_server):
    rotate = "c.apply_rope_(a, positions=range(64), spec='llama-3')"
    parent = f"c = phasor.Client(sys.argv[1]); a = c.empty((64, 4, 128)); a[:] = 1; {rotate}"
    assert forked(parent, "del a", f"{rotate}; print(a.shape)", phasor_server.target) == "(64, 4, 128)"


def test_a_client_that_was_not_used_connects_in_the_child(phasor_server):
    assert forked("c = phasor.Client(sys.argv[1])", "print(c.health())", "pass", phasor_server.target) == "True"


def _rotate(arguments):
    client, x = arguments
    return client.apply_rope(x, positions=range(len(x)), spec=LLAMA)


def test_clients_and_arrays_go_to_spawned_processes(remote):
    x = np.ones((3, 1, 128), np.float32)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = pool.map(_rotate, [(remote, x), (phasor.Client(), x)])
    wanted = phasor.apply_rope(x, positions=range(3), spec=LLAMA).tobytes()
    assert [result.tobytes() for result in results] == [wanted, wanted]


# --- servers ---


def test_a_server_that_is_killed_is_unavailable_and_its_successor_is_found():
    with testing.Server() as server:
        client = phasor.Client(server.target, max_attempts=1)
        assert client.health()
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises((phasor.Unavailable, phasor.DeadlineExceeded)):
            while True:
                client.health(timeout=5)
        server.kill()


def test_a_server_that_cannot_start_shows_its_log():
    with pytest.raises(RuntimeError, match="no-such-option"):
        testing.Server("--no-such-option").start()


def test_importing_is_quick_and_quiet():
    code = "import sys, numpy, phasor; print([m for m in ('asyncio', 'torch', 'ml_dtypes', 'grpc') if m in sys.modules])"
    assert run(code) == "[]"


def test_programs_have_a_fixture(tmp_path):
    (tmp_path / "conftest.py").write_text("from phasor.testing import phasor_server\n")
    test = "import phasor\ndef test_it(phasor_server):\n    assert phasor.Client(phasor_server.target).health()\n"
    (tmp_path / "test_it.py").write_text(test)
    assert "1 passed" in run("import pytest, sys; pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1]])", str(tmp_path))


def test_a_stream_that_ended_says_why(silent_server):
    with pytest.raises((phasor.DeadlineExceeded, phasor.Unavailable)):
        with phasor.Client(silent_server, max_attempts=1).stream(timeout=0.2) as stream:
            while True:
                stream.apply_rope(np.zeros((1, 1, 128), np.float32), positions=0, spec=LLAMA)


def test_a_server_killed_under_async_load_fails_every_call_and_no_other():
    async def main(server):
        async with phasor.AsyncClient(server.target, max_attempts=1, timeout=10) as client:
            x = np.zeros((64, 8, 128), np.float32)

            async def load():
                count = 0
                try:
                    while True:
                        await client.apply_rope(x, positions=range(64), spec=LLAMA)
                        count += 1
                except (phasor.Unavailable, phasor.DeadlineExceeded):
                    return count

            tasks = [asyncio.create_task(load()) for _ in range(32)]
            while not any(task.done() for task in tasks):
                await asyncio.wait(tasks, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
                os.kill(server.pid, signal.SIGKILL)
            assert sum(await asyncio.gather(*tasks)) > 0

    with testing.Server() as server:
        asyncio.run(main(server))
        server.kill()


def test_deadlines_hold(silent_server):
    started = time.monotonic()
    with pytest.raises((phasor.DeadlineExceeded, phasor.Unavailable)):
        phasor.Client(silent_server, max_attempts=1).health(timeout=0.2)
    assert time.monotonic() - started < 60  # guards against hanging


def test_deadlines_hold_when_a_server_takes_no_bytes():
    with testing.Server() as server:
        client = phasor.Client(server.target, max_attempts=1, staging_bytes=0)
        x = np.zeros((4096, 8, 128), np.float32)  # more than a socket holds
        client.apply_rope(x[:1], positions=0, spec=LLAMA)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            started = time.monotonic()
            with pytest.raises(phasor.DeadlineExceeded):
                client.apply_rope(x, positions=range(len(x)), spec=LLAMA, timeout=0.5)
            assert time.monotonic() - started < 60  # guards against hanging
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_ctrl_c_ends_a_call_whose_bytes_a_server_does_not_take():
    with testing.Server() as server:
        client = phasor.Client(server.target, staging_bytes=0)
        x = np.zeros((4096, 8, 128), np.float32)
        client.apply_rope(x[:1], positions=0, spec=LLAMA)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            started = time.monotonic()
            threading.Timer(0.5, _thread.interrupt_main).start()
            with pytest.raises(KeyboardInterrupt):
                client.apply_rope(x, positions=range(len(x)), spec=LLAMA, timeout=1000)
            assert time.monotonic() - started < 60  # guards against hanging
        finally:
            os.kill(server.pid, signal.SIGCONT)
        y = client.apply_rope(x[:1] + 1, positions=0, spec=LLAMA)  # the thread has another queue
        np.testing.assert_array_equal(y, x[:1] + 1)


def test_calls_that_are_made_once_survive_connections_that_were_closed_meanwhile():
    def call_now_and_then(target):
        with phasor.Client(target) as client:
            x = client.empty((4, 2, 128))  # the server writes it where it lies, so the call is not repeated
            x[:] = 1
            for pause in (0, 1.7, 2.5):
                time.sleep(pause)
                client.apply_rope_(x, positions=[0] * 4, spec=LLAMA)
            np.testing.assert_array_equal(x, np.ones_like(x))

    with testing.Server("--max-connection-idle", "1s") as server, ThreadPoolExecutor(8) as threads:
        for client in [threads.submit(call_now_and_then, server.target) for _ in range(8)]:
            client.result()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_calls_that_wait_need_no_thread_for_callbacks():
    with testing.Server() as server:
        threads = run(
            """
            import pathlib, sys
            import numpy as np, phasor
            client = phasor.Client(sys.argv[1])
            small, large = np.ones((1, 2, 128), "f4"), np.ones((4096, 2, 128), "f4")
            for x in [small, large, large, large, small]:
                client.apply_rope(x, positions=range(len(x)), spec="llama-3")
            names = [(task / "comm").read_text().strip() for task in pathlib.Path("/proc/self/task").iterdir()]
            print(names.count("nexting_thread"))
            """,
            server.target,
        )
    assert threads == "0"


def test_streams_end_when_a_server_takes_no_bytes():
    with testing.Server() as server:
        client = phasor.Client(server.target, staging_bytes=0)
        x = np.zeros((4096, 8, 128), np.float32)

        def write(timeout):
            with client.stream(timeout=timeout) as stream:
                while True:
                    stream.apply_rope(x, positions=range(len(x)), spec=LLAMA)

        client.apply_rope(x[:1], positions=0, spec=LLAMA)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            started = time.monotonic()
            with pytest.raises(phasor.DeadlineExceeded, match="while the server took no bytes"):
                write(0.5)
            threading.Timer(0.5, _thread.interrupt_main).start()
            with pytest.raises(KeyboardInterrupt):
                write(1000)
            assert time.monotonic() - started < 60  # guards against hanging
        finally:
            os.kill(server.pid, signal.SIGCONT)


# The server reads on when its answers are read, and the stream has one thread.
@pytest.mark.parametrize("budget", ["24MiB", "8GiB"])
def test_a_stream_of_large_calls_reads_while_it_writes(budget):
    with testing.Server("--stream-window-bytes", "64KiB", "--max-inflight-bytes", budget) as server:
        client = phasor.Client(server.target, staging_bytes=0)
        x = np.random.default_rng(1).standard_normal((1024, 8, 128)).astype(np.float32)
        wanted = client.apply_rope(x, positions=range(len(x)), spec=LLAMA)
        with client.stream(timeout=100) as stream:
            ids = [stream.apply_rope(x, positions=range(len(x)), spec=LLAMA) for _ in range(30)]
            answers = {answer.id: answer.result() for answer in stream}
        assert sorted(answers) == ids
        assert all(y.tobytes() == wanted.tobytes() for y in answers.values())


AT_THE_END = {
    "call": "client.apply_rope(x, positions=range(512), spec='llama-3')",
    "copy": "client.apply_rope(x[:, :, ::-1], positions=range(512), spec='llama-3')",
    "stream": "s = client.stream(); s.apply_rope(x, positions=range(512), spec='llama-3'); next(iter(s)); s.close()",
    "progress": "client.apply_rope_large(x, positions=range(512), spec='llama-3', chunk_bytes=1 << 16, progress=lambda *_: time.sleep(0.01))",
}


@pytest.mark.parametrize("call", AT_THE_END)
def test_a_program_ends_while_daemon_threads_call(call, phasor_server):
    run(
        f"""
        import sys, threading, time
        import numpy as np, phasor
        client = phasor.Client(sys.argv[1])
        x = np.ones((512, 8, 128), np.float32)
        kept = [{{i: [i]}} for i in range(300_000)]  # so that the end takes a moment
        def work():
            while True:
                {AT_THE_END[call]}
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
        print("ends")
        """,
        phasor_server.target,
    )


def test_a_program_ends_while_the_progress_of_an_interrupted_call_sleeps():
    run(
        """
        import _thread, threading, time
        import numpy as np, phasor
        kept = [{i: [i]} for i in range(300_000)]
        threading.Timer(0.3, _thread.interrupt_main).start()
        try:
            phasor.Client("inproc:").apply_rope_large(
                np.ones((512, 8, 128), np.float32), positions=range(512), spec="llama-3",
                chunk_bytes=1 << 16, progress=lambda *_: time.sleep(0.6))
        except KeyboardInterrupt:
            print("ends")
        """
    )
