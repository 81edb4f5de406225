# SPDX-License-Identifier: Apache-2.0
"""cuda_dry_test.py BENCH_CUDA: runs the GPU benchmark on the host. The benchmark compares what it
times with the reference and fails on a wrong byte, so a row in its output proves a right result;
its times mean nothing. Without --dry, and without a GPU, it must report that there is no device."""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

NO_DEVICE = 3
ROWS = {"rope_inplace": 25, "rope_outofplace": 2, "encode": 18, "merged": 2, "host_rope": 2, "host_merged": 1}
TYPES = {"rope_inplace": {"BFLOAT16", "FLOAT16", "FLOAT32"}, "encode": {"BFLOAT16", "FLOAT32"}}
CACHES = {"warm", "cold", "DRAM"}
TARGETS = {"rope_inplace": 0.93, "encode": 0.9, "merged": 20.0}


def main():
    bench = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "cuda.json")
        done = subprocess.run([bench, path, "--quick", "--dry"], capture_output=True, text=True, timeout=280, check=False)
        if done.returncode != 0:
            sys.exit(f"bench_cuda --dry ended with status {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
        rows = json.loads(path.read_text(encoding="utf-8"))
    found = collections.Counter(row["name"] for row in rows)
    for name, least in ROWS.items():
        assert found[name] >= least, f"{found[name]} rows of {name}, at least {least} expected"
    assert {row["cache"] for row in rows} == CACHES, {row["cache"] for row in rows}
    for name, types in TYPES.items():
        assert {row["dtype"] for row in rows if row["name"] == name} == types, name
    for name, target in TARGETS.items():
        assert {row["target"] for row in rows if row["name"] == name} - {None} == {target}, name
    for row in rows:
        assert row["value"] > 0 and row["baseline_value"] > 0 and row["ratio"] > 0 and row["quick"], row
    merged = [row["shape"] for row in rows if row["name"] == "merged"]
    assert all("256 x 1 token, 1 launch" in shape for shape in merged), f"merged requests are not one launch: {merged}"
    print(f"{len(rows)} rows")

    done = subprocess.run([bench], capture_output=True, text=True, timeout=280, check=False)
    if done.returncode == NO_DEVICE:
        assert "no CUDA device" in done.stderr, done.stderr
    elif done.returncode != 0:
        sys.exit(f"bench_cuda ended with status {done.returncode}: {done.stderr[-500:]}")


if __name__ == "__main__":
    main()
