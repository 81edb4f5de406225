# SPDX-License-Identifier: Apache-2.0
"""The programs of client/python/examples that need no model. Those that move caches have tests of their own."""

import asyncio
import math
import pathlib
import sys

import mpmath
import numpy as np
import pytest

import phasor

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "client/python/examples"))


def test_the_first_call_gives_the_same_bytes_here_and_there(phasor_server, capsys):
    import first_call

    assert first_call.show(phasor_server.target)
    assert "(16, 32, 128) (16, 8, 128)" in capsys.readouterr().out


def test_float32_angles_drift_and_phasors_do_not(tmp_path):
    import long_context_error

    rows = long_context_error.main("llama-3")
    assert [row[0] for row in rows] == long_context_error.POSITIONS
    for position, usual, phasors in rows:
        # A product is off by half a unit in its last place, at most; the first pair turns by a radian a token.
        assert usual < position * 2.0**-24 * 1.5 + 1e-6
        assert phasors < 1.2e-7
    assert rows[-1][1] > 0.01


def test_the_example_measures_with_the_truth():
    spec = phasor.Spec("llama-3").resolve()
    position, pair = 2**20 + 5, spec.pairs[3]
    with mpmath.workdps(50):
        turn = mpmath.mpf(pair.turns.numerator) / pair.turns.denominator * position
        assert math.isclose(float(spec.cos_sin([position])[0][0, 3]), float(mpmath.cos(2 * mpmath.pi * turn)), abs_tol=6e-8)


def test_the_plot_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: client/python/requirements.txt names it")
    import long_context_error

    path = tmp_path / "error.png"
    long_context_error.main("llama-3", path)
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


def test_the_pipeline_answers_many_at_once_and_explains_errors(phasor_server, monkeypatch):
    httpx = pytest.importorskip("httpx", reason="httpx is not installed: client/python/requirements.txt names it")
    monkeypatch.setenv("PHASOR_SERVER", phasor_server.target)
    import pipeline

    async def calls():
        async with (
            pipeline.app.router.lifespan_context(pipeline.app),
            httpx.AsyncClient(transport=httpx.ASGITransport(pipeline.app), base_url="http://pipeline") as http,
        ):
            steps = [{"timesteps": [float(step), step + 0.5]} for step in range(64)]
            answers = await asyncio.gather(*(http.post("/embeddings", json=one) for one in steps))
            wrong = await http.post("/embeddings", content=b'{"timesteps": [1e400]}', headers={"content-type": "application/json"})
            return answers, wrong

    answers, wrong = asyncio.run(calls())
    for step, answer in enumerate(answers):
        rows = np.asarray(answer.json()["embeddings"], np.float32)
        assert np.array_equal(rows, phasor.encode(pipeline.SPEC, [float(step), step + 0.5]))
    assert wrong.status_code == 422 and "positions" in wrong.json()["error"]
