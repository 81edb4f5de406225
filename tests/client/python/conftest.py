# SPDX-License-Identifier: Apache-2.0
"""Targets that the tests call: in process, and a server of the same build."""

import os
import sys

import pytest

import phasor
from phasor.testing import phasor_server  # noqa: F401  a fixture

sys.path.insert(0, os.path.dirname(__file__))


@pytest.fixture(scope="session")
def remote(phasor_server):  # noqa: F811
    """A client of a server over a Unix socket, without staging: tensors are sent."""
    with phasor.Client(phasor_server.target, staging_bytes=0) as client:
        yield client


@pytest.fixture(scope="session")
def staged(phasor_server):  # noqa: F811
    """The same with staging."""
    with phasor.Client(phasor_server.target) as client:
        yield client


@pytest.fixture(params=["inproc", "remote", "staged"])
def client(request):
    """Each kind of client in turn."""
    return phasor.Client() if request.param == "inproc" else request.getfixturevalue(request.param)
