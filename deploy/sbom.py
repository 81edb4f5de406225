#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sbom.py BUILD_DIR BINARY OUT: writes the bill of materials of BINARY, which was built in
BUILD_DIR as phasor-bundle: OUT/sbom.spdx.json (SPDX 2.3) and OUT/copyright/PACKAGE.gz. It lists
each package that owns an archive of the link line, a compiled header, or a shared library of the
image. Names, versions and licences are Debian's. SOURCE_DATE_EPOCH, if set, is the date of
creation."""

import datetime
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = "deploy/phasor-bundle"
# Packages of the base image. They are not in the binary, also if it includes their headers.
IN_THE_BASE = ("glibc", "linux")
IN_THE_BASE_LIBRARIES = re.compile(r"(libc|libm|libdl|librt|libpthread)\.so")  # as in stage-image.sh
# Debian's short names that are not SPDX's.
LICENSES = {
    "BSD-3-clause": "BSD-3-Clause",
    "BSD-3-Clause~Google": "BSD-3-Clause",
    "BSD-3-google": "BSD-3-Clause",
    "Expat": "MIT",
    "libpng": "libpng-2.0",
}
SPDX_NAMES = ("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "MIT", "Zlib")
# Licences of packages whose copyright file is not machine-readable.
PROSE = {"c-ares": "MIT", "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1"}
# Its licence requires the text only with sources, and Boost's copyright file has 2 MB.
TEXT_NOT_ASKED_FOR = ("BSL-1.0",)
CUDA_LICENSE = "LicenseRef-NVIDIA-CUDA-Toolkit-EULA"


def main(build, binary, out):
    out.mkdir(parents=True, exist_ok=True)
    try:
        packages = debian_packages(linked_archives(build, TARGET) | compiled_in_headers(build) | shipped_libraries(build / TARGET))
    except LookupError as error:
        sys.exit(f"sbom: {error}")
    if has_cuda_runtime(build):
        packages.append(cuda_runtime(cache(build)))
    document = describe(cache(build)["CMAKE_PROJECT_VERSION"], binary, packages)
    (out / "sbom.spdx.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", out / "LICENSE")
    (out / "copyright").mkdir(exist_ok=True)
    for name, text in copyright_texts(packages).items():
        (out / "copyright" / f"{name}.gz").write_bytes(gzip.compress(text, mtime=0))


# --- what is in the binary ------------------------------------------------------------------------


def ninja(build, *arguments):
    return subprocess.run(
        ["ninja", "-C", build, "-t", *arguments], check=True, capture_output=True, text=True
    ).stdout


def linked_archives(build, target):
    """Archives from outside the project that the binary was linked with."""
    link = ninja(build, "commands", target).splitlines()[-1]
    archives = {pathlib.Path(word) for word in link.split() if word.startswith("/") and word.endswith(".a")}
    return {archive for archive in archives if not archive.is_relative_to(build.resolve())}


def compiled_in_headers(build):
    """Headers from outside the project of the objects that the binary may contain: all but tests and benchmarks."""
    headers, ours = set(), False
    for line in ninja(build, "deps").splitlines():
        if not line.startswith(" "):
            ours = not line.startswith(("tests/", "bench/"))
        elif ours and line.strip().startswith("/usr/"):
            headers.add(pathlib.Path(line.strip()))
    return headers


def shipped_libraries(binary):
    """Shared libraries that the image carries beside the binary, as patterns: Debian moved the folders above some."""
    listed = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
    found = (pathlib.Path(path) for path in re.findall(r"=> (/\S+)", listed))
    real = (path.resolve() for path in found if not IN_THE_BASE_LIBRARIES.match(path.name))
    return {pathlib.Path("*") / path.parent.name / path.name for path in real}


def debian_packages(files):
    """The source packages that own the files; files of CUDA, which no package owns, are left out. LookupError: no package
    owns one of the others."""
    files = sorted(str(file) for file in files if not of_cuda(file))
    owned = subprocess.run(["dpkg", "-S", *files], check=False, capture_output=True, text=True)
    if owned.returncode != 0:
        raise LookupError(f"no package owns a file that is part of the binary:\n{owned.stderr}")
    owners = sorted({line.split(": ")[0].split(", ")[0] for line in owned.stdout.splitlines()})
    shown = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${source:Package}\t${source:Version}\t${Package}\n", *owners],
        check=True, capture_output=True, text=True,
    ).stdout
    packages = {}
    for name, version, owner in (line.split("\t") for line in shown.splitlines()):
        copyright_file = pathlib.Path("/usr/share/doc") / owner / "copyright"
        if name not in IN_THE_BASE and name not in packages:
            packages[name] = {
                "name": name,
                "version": version,
                "license": license_of(name, copyright_file),
                "locator": f"pkg:deb/debian/{name.replace('+', '%2B')}@{version.replace(':', '%3A')}?arch=source",
                "supplier": "Organization: Debian",
            } | ({"copyright": copyright_file} if copyright_file.exists() else {})
    return [packages[name] for name in sorted(packages)]


def copyright_texts(packages):
    """By the name of the package, where its licence asks for the text beside a binary."""
    return {
        package["name"]: package["copyright"].read_bytes()
        for package in packages
        if "copyright" in package and package["license"] not in TEXT_NOT_ASKED_FOR
    }


def has_cuda_runtime(build):
    """Whether the kernels hold the CUDA runtime as one object of theirs (cmake/PhasorCuda.cmake)."""
    members = subprocess.run(["ar", "t", build / "kernels/libphasor_kernels.a"], capture_output=True, text=True, check=True)
    return "phasor_kernels_cuda.o" in members.stdout.split()


def of_cuda(file):
    """A toolkit's folder has its name, and links to its files may lie anywhere, as in /usr/local/include."""
    return "cuda" in str(file) or file.is_absolute() and "cuda" in str(file.resolve())


def license_of(package, copyright_file):
    """The licence of most of a package (`Files: *`) as SPDX names it, NOASSERTION when it is not known."""
    if package in PROSE:
        return PROSE[package]
    text = copyright_file.read_text(encoding="utf-8") if copyright_file.exists() else ""
    for paragraph in re.split(r"\n\s*\n", text):
        if re.search(r"^Files:\s*\*\s*$", paragraph, re.MULTILINE):
            name = re.search(r"^License:\s*(\S+)", paragraph, re.MULTILINE)
            name = LICENSES.get(name[1], name[1]) if name else ""
            return name if name in SPDX_NAMES or name in LICENSES.values() else "NOASSERTION"
    return "NOASSERTION"


def cuda_runtime(options):
    header = pathlib.Path(options["PHASOR_CUDA_INCLUDE"]) / "cuda_runtime_api.h"
    number = int(re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header.read_text(encoding="utf-8"))[1])
    return {
        "name": "cuda-cudart",
        "version": f"{number // 1000}.{number % 1000 // 10}",
        "license": CUDA_LICENSE,
        "supplier": "Organization: NVIDIA",
    }


def cache(build):
    """Variables of CMake's cache."""
    text = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^(\w+):\w+=(.*)$", text, re.MULTILINE))


# --- the document ---------------------------------------------------------------------------------


def describe(version, binary, packages):
    checksum = hashlib.sha256(binary.read_bytes()).hexdigest()
    created = datetime.datetime.fromtimestamp(
        int(os.environ.get("SOURCE_DATE_EPOCH") or datetime.datetime.now().timestamp()), datetime.timezone.utc
    )
    product = {
        "SPDXID": "SPDXRef-phasor",
        "name": "phasor",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "primaryPackagePurpose": "APPLICATION",
        "packageFileName": binary.name,
        "checksums": [{"algorithm": "SHA256", "checksumValue": checksum}],
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
    }
    parts = [spdx_package(package) for package in packages]
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-phasor"}]
    relations += [
        {"spdxElementId": "SPDXRef-phasor", "relationshipType": "CONTAINS", "relatedSpdxElement": part["SPDXID"]}
        for part in parts
    ]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"phasor-{version}",
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, checksum)}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: deploy/sbom.py"]},
        "packages": [product, *parts],
        "relationships": relations,
    }
    if any(package["license"] == CUDA_LICENSE for package in packages):
        document["hasExtractedLicensingInfos"] = [{
            "licenseId": CUDA_LICENSE,
            "name": "NVIDIA CUDA Toolkit End User License Agreement",
            "extractedText": "The licence agreement of the CUDA Toolkit, which names the static run time redistributable.",
            "seeAlsos": ["https://docs.nvidia.com/cuda/eula/"],
        }]
    return document


def spdx_package(package):
    spdx = {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", package["name"]),
        "name": package["name"],
        "versionInfo": package["version"],
        "supplier": package["supplier"],
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": package["license"],
        "copyrightText": "NOASSERTION",
    }
    if "locator" in package:
        spdx["externalRefs"] = [{
            "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": package["locator"],
        }]
    return spdx


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: sbom.py BUILD_DIR BINARY OUT")
    main(*(pathlib.Path(argument) for argument in sys.argv[1:]))
