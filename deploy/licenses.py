#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""licenses.py BUILD_DIR OUT TARGET...: writes OUT/PACKAGE.txt, the copyright and the licences of each package whose code
is in the built TARGETs, for the wheel. Run it with the Python that has nanobind. If the libraries are not Debian's, it
writes nanobind's only, and says so."""

import importlib.metadata
import pathlib
import shutil
import subprocess
import sys

import sbom


def main(build, out, targets):
    texts = nanobind_and_its_map()
    try:
        texts |= sbom.copyright_texts(sbom.debian_packages(files_of(build, targets)))
    # No ninja, another generator, no dpkg, or files that it does not know.
    except (FileNotFoundError, subprocess.CalledProcessError, LookupError) as error:
        print(f"licenses.py: the licences of gRPC and others are not in the wheel: {error}", file=sys.stderr)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name, text in texts.items():
        (out / f"{name}.txt").write_bytes(text)


def files_of(build, targets):
    """Those that a package owns. An archive of deploy/pic-libraries.sh stands for Debian's of the same name."""
    files = sbom.compiled_in_headers(build)
    for target in targets:
        files |= {pathlib.Path("*") / archive.name for archive in sbom.linked_archives(build, target)}
        files |= sbom.shipped_libraries(build / target)
    return files


def nanobind_and_its_map():
    files = importlib.metadata.files("nanobind") or []
    license_file = next(file for file in files if file.name == "LICENSE")
    robin_map = next(file for file in files if file.name == "robin_map.h")
    return {"nanobind": license_file.read_binary(), "robin-map": robin_map.read_binary().split(b"*/")[0] + b"*/\n"}


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: licenses.py BUILD_DIR OUT TARGET...")
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:])
