# SPDX-License-Identifier: Apache-2.0
"""AsyncClient: many calls in flight, cancellation, errors, several loops."""

import asyncio
import contextlib
import gc
import hashlib
import json
import socket
import sys
import threading
import weakref

import numpy as np
import pytest

import phasor
from phasor.testing import Server

LLAMA = phasor.Spec("llama-3")


@pytest.fixture(params=["inproc", "remote"])
def target(request, phasor_server):
    return "inproc:" if request.param == "inproc" else phasor_server.target


def x(step=0):
    return np.random.default_rng(step).standard_normal((5, 2, 128)).astype(np.float32)


def test_calls_in_flight_get_their_own_results(target):
    async def main():
        async with phasor.AsyncClient(target) as client:
            return await asyncio.gather(*(client.apply_rope(x(i), positions=range(i, i + 5), spec=LLAMA) for i in range(64)))

    for i, y in enumerate(asyncio.run(main())):
        assert y.tobytes() == phasor.apply_rope(x(i), positions=range(i, i + 5), spec=LLAMA).tobytes()


def test_rotations_of_one_turn_have_their_own_results_and_errors(phasor_server):
    rotations = {i: {"positions": range(i, i + 5), "spec": LLAMA} for i in range(100)}
    rotations[30]["positions"] = range(4)
    rotations[31]["spec"] = "no-such-preset"
    rotations[32]["pins"] = phasor.Pins(backend="cuda")
    rotations[34]["timeout"] = 5
    move = {"from_positions": range(5), "positions": range(33, 38), "spec": LLAMA}

    async def main(**options):
        async with phasor.AsyncClient(phasor_server.target, **options) as client:
            calls = [client.apply_rope(x(i), **rotations[i]) for i in rotations]
            return await asyncio.gather(*calls, client.move_keys(x(), **move), return_exceptions=True)

    together, alone = asyncio.run(main()), asyncio.run(main(join_bytes=0))
    for i, (a, b) in enumerate(zip(together, alone, strict=True)):
        if i in (30, 31, 32):
            assert isinstance(a, phasor.Error) and type(a) is type(b) and str(a) == str(b), "the error of a call by itself"
        else:
            wanted = phasor.apply_rope(x(i), **rotations[i]) if i < 100 else phasor.move_keys(x(), **move)
            assert a.tobytes() == wanted.tobytes() == b.tobytes()


@contextlib.contextmanager
def server_that_allows(folder, *methods):
    """A server and a token's file; the token may call these methods only."""
    token = "0123456789abcdef" * 4
    (folder / "token").write_text(token)
    (folder / "tokens").write_text(f"me sha256:{hashlib.sha256(token.encode()).hexdigest()}\n")
    methods = [f"phasor.v1.PositionEmbeddingService/{method}" for method in methods]
    (folder / "policy").write_text(json.dumps({"identities": [{"identity": "token:me", "methods": methods}]}))
    with Server("--tokens-file", str(folder / "tokens"), "--policy-file", str(folder / "policy")) as server:
        yield server.target, str(folder / "token")


async def rotate_many(target, token, tasks, rounds=1, **options):
    async with phasor.AsyncClient(target, token_file=token, **options) as client:
        for _ in range(rounds):
            calls = (client.apply_rope(x(i), positions=range(i, i + 5), spec=LLAMA) for i in range(tasks))
            for i, y in enumerate(await asyncio.gather(*calls)):
                assert y.tobytes() == phasor.apply_rope(x(i), positions=range(i, i + 5), spec=LLAMA).tobytes()


def test_only_one_message_of_several_is_a_batch(tmp_path):
    with server_that_allows(tmp_path, "BatchApplyRoPE") as (target, token):
        asyncio.run(rotate_many(target, token, 100))
        with pytest.raises(phasor.PermissionDenied):
            asyncio.run(rotate_many(target, token, 100, join_bytes=0))
        with pytest.raises(phasor.PermissionDenied):
            asyncio.run(rotate_many(target, token, 100, join_bytes=x().nbytes - 1))
        with pytest.raises(phasor.PermissionDenied):
            asyncio.run(rotate_many(target, token, 1))


def test_a_server_that_allows_no_batches_gets_single_calls(tmp_path):
    with server_that_allows(tmp_path, "ApplyRoPE") as (target, token):
        asyncio.run(rotate_many(target, token, 100, rounds=3))


def test_a_client_that_is_closed_before_a_turn_ends_says_so(phasor_server):
    async def main():
        client = phasor.AsyncClient(phasor_server.target)
        tasks = [asyncio.create_task(client.apply_rope(x(i), positions=range(5), spec=LLAMA)) for i in range(3)]
        asyncio.get_running_loop().call_soon(client.close)  # after they began, before they are sent
        for error in await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60):
            assert isinstance(error, phasor.FailedPrecondition) and "closed" in str(error)

    asyncio.run(main())
    with pytest.raises(phasor.InvalidArgument, match="join_bytes: -1; must be at least 0"):
        phasor.AsyncClient(phasor_server.target, join_bytes=-1)


def test_a_cancelled_rotation_does_not_end_the_others_of_its_message(phasor_server):
    async def main():
        async with phasor.AsyncClient(phasor_server.target) as client:
            tasks = [asyncio.create_task(client.apply_rope(x(i), positions=range(5), spec=LLAMA)) for i in range(8)]
            gone = asyncio.create_task(client.apply_rope(x(9), positions=range(5), spec=LLAMA))
            await asyncio.wait([gone], timeout=0)  # all have begun
            assert gone.cancel()
            *others, ended = await asyncio.gather(*tasks, gone, return_exceptions=True)
            assert isinstance(ended, asyncio.CancelledError)
            for i, y in enumerate(others):
                assert y.tobytes() == phasor.apply_rope(x(i), positions=range(5), spec=LLAMA).tobytes()

    asyncio.run(main())


def test_a_message_is_cancelled_when_nobody_waits_for_it():
    with socket.create_server(("127.0.0.1", 0)) as silent:

        async def main():
            client = phasor.AsyncClient(f"127.0.0.1:{silent.getsockname()[1]}", timeout=600)
            values = [x(i) for i in range(8)]
            tasks = [asyncio.create_task(client.apply_rope(each, positions=range(5), spec=LLAMA)) for each in values]
            gone = [weakref.ref(each) for each in values]
            values.clear()
            await asyncio.wait(tasks, timeout=0.05)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            del task
            tasks.clear()
            while any(each() is not None for each in gone):  # until the connection has let go of the arrays
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.02)
                gc.collect()

        asyncio.run(asyncio.wait_for(main(), 60))


def test_every_call_has_a_coroutine(target):
    async def main():
        async with phasor.AsyncClient(target) as client:
            mine = x()
            await client.apply_rope_(mine, positions=range(5), spec=LLAMA)
            assert mine.tobytes() == phasor.apply_rope(x(), positions=range(5), spec=LLAMA).tobytes()
            moved = await client.move_keys(mine, from_positions=range(5), positions=range(5), spec=LLAMA)
            np.testing.assert_allclose(moved, mine, atol=1e-6)
            rows = await client.encode({"preset": "transformer", "dim": 8}, np.arange(6).reshape(2, 3))
            assert rows.shape == (2, 3, 8)
            caches = np.zeros((2, 2, 4, 2, 128), np.float32)
            await client.write_paged(
                x(), x(), positions=range(5), spec=LLAMA, key_cache=caches[0], value_cache=caches[1], slot_mapping=np.arange(5)
            )
            assert caches[1].reshape(8, 2, 128)[:5].tobytes() == x().tobytes()
            assert (await client.attention_bias("alibi", heads=2, queries=[1], keys=range(2))).shape == (2, 1, 2)
            assert await client.health() and (await client.info()).version and await client.presets()
            assert (await client.resolve("llama-3")).width == 128

    asyncio.run(main())


@pytest.mark.parametrize("given", [{}, {"pins": None}])
def test_the_pins_of_a_client_hold_for_all_its_coroutines(target, given):
    caches = np.zeros((2, 2, 4, 2, 128), np.float32)
    rotation = {"positions": range(5), "spec": LLAMA, **given}

    async def main():
        async with phasor.AsyncClient(target, pins=phasor.Pins(numerics_version=phasor.numerics_version + 1)) as client:
            return await asyncio.gather(
                client.apply_rope(x(), **rotation),
                client.move_keys(x(), from_positions=range(5), **rotation),
                client.write_paged(x(), x(), key_cache=caches[0], value_cache=caches[1], slot_mapping=np.arange(5), **rotation),
                client.encode({"preset": "transformer", "dim": 8}, 3, **given),
                return_exceptions=True,
            )

    assert [type(each) for each in asyncio.run(main())] == [phasor.FailedPrecondition] * 4


def test_batches_and_streams_give_the_results_of_single_calls(target):
    async def main():
        async with phasor.AsyncClient(target) as client:
            async with client.batch() as batch:
                rotated = [batch.apply_rope(x(i), positions=range(5), spec=LLAMA) for i in range(3)]
                rows = batch.encode(LLAMA, range(4), form="cos")
                bad = batch.apply_rope(x(), positions=range(4), spec=LLAMA)
            assert [handle.result().tobytes() for handle in rotated] == [expected(i) for i in range(3)]
            assert rows.result().tobytes() == phasor.encode(LLAMA, range(4), form="cos").tobytes()
            assert isinstance(bad.exception(), phasor.InvalidArgument)

            answers = {}
            async with client.stream() as stream:
                for i in range(20):
                    assert await stream.apply_rope(x(i), positions=range(5), spec=LLAMA) == i
                async for answer in stream:
                    answers[answer.id] = answer.result().tobytes()
            assert answers == {i: expected(i) for i in range(20)}

            large = await client.apply_rope_large(x(), positions=range(5), spec=LLAMA, chunk_bytes=1024)
            assert large.tobytes() == expected(0)
            assert (await client.empty((2, 3))).shape == (2, 3)

    def expected(i):
        return phasor.apply_rope(x(i), positions=range(5), spec=LLAMA).tobytes()

    asyncio.run(main())


def test_cancelling_a_task_cancels_its_stream():
    with socket.create_server(("127.0.0.1", 0)) as silent:

        async def main():
            client = phasor.AsyncClient(f"127.0.0.1:{silent.getsockname()[1]}", timeout=600)

            async def read():
                async with client.stream() as stream:
                    await stream.apply_rope(x(), positions=range(5), spec=LLAMA)
                    async for _ in stream:
                        raise AssertionError("nobody answers")

            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(read(), 0.2)

        asyncio.run(main())  # would wait for the stream's thread if that still waited


def test_errors_are_raised_where_the_call_is_awaited(target):
    async def main():
        async with phasor.AsyncClient(target) as client:
            good, bad = await asyncio.gather(
                client.apply_rope(x(), positions=range(5), spec=LLAMA),
                client.apply_rope(x(), positions=range(4), spec=LLAMA),
                return_exceptions=True,
            )
            assert good.shape == (5, 2, 128)
            assert isinstance(bad, phasor.InvalidArgument)

    asyncio.run(main())


def test_a_result_that_cannot_be_made_leaves_the_others(target, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    spec = {"preset": "transformer", "dim": 8}

    async def main():
        async with phasor.AsyncClient(target) as client:
            calls = [client.encode(spec, range(3), dtype=dtype) for dtype in ("float32", "bfloat16", "float32")]
            first, without, last = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
            assert first.tobytes() == last.tobytes() == phasor.encode(spec, range(3)).tobytes()
            assert isinstance(without, phasor.InvalidArgument) and "install ml_dtypes" in str(without)

    asyncio.run(main())


def test_cancelling_a_task_cancels_its_call():
    with socket.create_server(("127.0.0.1", 0)) as silent:

        async def main():
            client = phasor.AsyncClient(f"127.0.0.1:{silent.getsockname()[1]}", timeout=600)
            values = x()
            task = asyncio.create_task(client.apply_rope(values, positions=range(5), spec=LLAMA, inplace=True))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(task, 0.2)
            assert values.tobytes() == x().tobytes()
            with pytest.raises((phasor.DeadlineExceeded, phasor.Unavailable)):
                await client.encode("llama-3", 1, form="cos", timeout=0.2)

        asyncio.run(main())


def test_loops_of_several_threads_share_nothing(phasor_server):
    failures = []

    async def main():
        async with phasor.AsyncClient(phasor_server.target) as client:
            await asyncio.gather(*(client.encode("llama-3", i, form="cos") for i in range(20)))

    def work():
        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_loop_may_end_with_calls_in_flight():
    with socket.create_server(("127.0.0.1", 0)) as silent:

        async def main():
            client = phasor.AsyncClient(f"127.0.0.1:{silent.getsockname()[1]}", timeout=600)
            task = asyncio.create_task(client.apply_rope(x(), positions=range(5), spec=LLAMA))
            _, waiting = await asyncio.wait([task], timeout=0.05)
            assert waiting

        asyncio.run(main())
