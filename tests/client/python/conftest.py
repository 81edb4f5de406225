# SPDX-License-Identifier: Apache-2.0
"""Targets that the tests call: in process, and a server of the same build."""

import os
import sys

import pytest

import phasor
from phasor.testing import Server

sys.path.insert(0, os.path.dirname(__file__))


@pytest.fixture(scope="session")
def phasor_server(tmp_path_factory):
    """As the fixture of phasor.testing, with a folder for tables."""
    with Server("--tables-dir", str(tmp_path_factory.mktemp("tables"))) as server:
        yield server


@pytest.fixture(scope="session")
def remote(phasor_server):
    """A client of a server over a Unix socket, without staging: tensors are sent."""
    with phasor.Client(phasor_server.target, staging_bytes=0) as client:
        yield client


@pytest.fixture(scope="session")
def staged(phasor_server):
    """The same with staging."""
    with phasor.Client(phasor_server.target) as client:
        yield client


@pytest.fixture(params=["inproc", "remote", "staged"])
def client(request):
    """Each kind of client in turn."""
    return phasor.Client() if request.param == "inproc" else request.getfixturevalue(request.param)
