# SPDX-License-Identifier: Apache-2.0
"""Exceptions to the rules, each with its reason. An exception that is no longer needed is an error.
"""

# Files of more than 500 lines.
LONG_FILES = {
}

# Sources X/Y.cc without tests/X/Y_test.cc.
UNTESTED_SOURCES = {
    "client/examples/cached_keys.cc": "checks itself; CTest runs it as example_cached_keys",
    "client/examples/move_keys.cc": "checks itself; CTest runs it as example_move_keys",
    "client/examples/quickstart/main.cc": "tests/client/quickstart_installed.sh builds it against the installed package and runs it",
    "server/admin_server.cc": "tests/e2e/metrics_test.cc calls one",
    "server/grpc/grpc_server.cc": "every test of a server goes through it; tests/e2e/tls_test.cc has both kinds of sockets",
    "server/grpc/observed_call.cc": "tests/server/grpc/call_interceptor_test.cc reads what it reports in both ways",
    "server/grpc/finish_call.cc": "needs a gRPC server: tests/server/api/tensor_call_test.cc reads what it adds",
    "server/telemetry/families.cc": "tests/server/telemetry/snapshot_families_test.cc reads what it makes",
    "server/telemetry/metrics.cc": "tests/e2e/metrics_test.cc scrapes it",
    "server/main.cc": "flags, signals and Server::Start; the end-to-end tests run the binary",
}
UNTESTED_SOURCES |= {
    f"client/python/native/{name}.cc": "called from Python only; tests/client/python has its tests"
    for name in ("arrays", "borrowed", "calls", "client", "completions", "device_memory", "gil", "helpers", "module", "moves", "overlap", "positions", "streams", "values", "waiting")
}

# Files under tests/ that sleep.
SLEEPS = {
    "tests/accept/envoy.py": "looks every 50 ms whether Envoy serves",
    "tests/accept/running.py": "looks every 20 ms whether a server has said its address",
    "tests/client/cli/load_test.cc": "operations that take a time: `phasor bench` is to measure it",
    "tests/deploy/alerts_fire_test.py": "looks every 0.1 s which alerts fire",
    "tests/deploy/dashboard_test.py": "eventually(), which looks every 0.2 s; a load of two calls a second",
    "tests/deploy/rest_test.py": "looks every 50 ms whether calls reach the server",
    "tests/deploy/package_test.sh": "looks every 0.1 s whether systemd has booted",
    "tests/deploy/systemd_test.sh": "looks every 0.1 s whether a server has said its address",
    "tests/docs/commands_test.py": "looks every 20 ms whether a server serves",
    "tests/e2e/overload_test.cc": "a load that keeps a rate",
    "tests/e2e/slow_server.cc": "a backend whose every call takes the same time",
    "tests/faults/faults_test.py": "a server is stopped for 3 s; a slow network",
    "tests/faults/faulty_server.py": "eventually(), which looks every 20 ms",
    "tests/gpu/run.sh": "looks every 0.1 s whether a server has said its address",
    "tests/client/python/process_test.py": "a client that makes no call until its server closes the connection",
    "tests/repo/selftest.py": "plants sleeps",
    "tests/server/api/table_service_test.cc": "plays a caller that sends slowly",
    "tests/support/eventually.h": "Eventually itself",
    "tests/support/fake_driver.h": "a device whose trips take a time",
    "tests/support/steady_load.h": "a load that keeps a rate",
    "tests/soak/client.py": "calls at a rate",
    "tests/soak/soak.py": "a sample a second for as long as it runs",
}
