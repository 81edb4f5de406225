# SPDX-License-Identifier: Apache-2.0
"""AsyncClient: many calls in flight, cancellation, errors, several loops."""

import asyncio
import socket
import threading

import numpy as np
import pytest

import phasor

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
