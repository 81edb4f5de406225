# SPDX-License-Identifier: Apache-2.0
"""A web service whose requests share one connection to a Phasor server: timestep embeddings of a diffusion model.

    pip install fastapi uvicorn
    phasor-server --listen unix:/tmp/phasor.sock &
    PHASOR_SERVER=unix:/tmp/phasor.sock uvicorn pipeline:app
    curl -d '{"timesteps": [10, 12, 16]}' -H 'content-type: application/json' localhost:8000/embeddings

A request in flight takes no thread. The server computes those that wait together in one run, so small requests cost little.
Without $PHASOR_SERVER the service computes in its own process.
"""

import contextlib
import os

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

import phasor

SPEC = phasor.Spec("timestep-sin-cos", dim=128)


class Steps(BaseModel):
    timesteps: list[float] = Field(min_length=1, max_length=4096)


@contextlib.asynccontextmanager
async def connected(app):
    async with phasor.AsyncClient(os.environ.get("PHASOR_SERVER", "inproc:"), timeout=5.0) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=connected)


@app.exception_handler(phasor.Error)
async def explain(_request, error):
    """503: try again. 422: the request is wrong, and the text says where."""
    status = 503 if error.retryable else 422 if isinstance(error, ValueError) else 500
    return JSONResponse({"error": str(error)}, status)


@app.post("/embeddings")
async def embeddings(steps: Steps, request: Request):
    rows = await request.app.state.client.encode(SPEC, steps.timesteps)
    return {"embeddings": rows.tolist()}
