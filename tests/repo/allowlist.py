# SPDX-License-Identifier: Apache-2.0
"""Exceptions from the rules, each with its reason. An exception that is not needed any more is an error."""

# Files of more than 500 lines.
LONG_FILES = {
}

# Sources X/Y.cc without tests/X/Y_test.cc.
UNTESTED_SOURCES = {
    "client/examples/cached_keys.cc": "checks itself; CTest runs it as example_cached_keys",
    "client/quickstart/main.cc": "tests/client/quickstart_installed.sh builds it against the installed package and runs it",
    "kernels/cuda/launch.cu": "wraps the bodies that tests/kernels/cuda/items_test.cc runs; cuda_driver_test.cc launches it",
    "server/main.cc": "flags, signals and Server::Start; the end-to-end tests run the binary",
}
