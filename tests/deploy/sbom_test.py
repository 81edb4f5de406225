# SPDX-License-Identifier: Apache-2.0
"""sbom_test.py BUILD_DIR: checks that the image's bill of materials is valid SPDX 2.3 and names
everything in the binary."""

import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    from spdx_tools.spdx.parser.parse_anything import parse_file
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
except ImportError as error:
    print(f"SKIP: {error}; ./dev test installs it (tests/requirements.txt)")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
BINARY = BUILD / "deploy/phasor-bundle"


def write(out, epoch="1700000000"):
    subprocess.run(
        [sys.executable, ROOT / "deploy/sbom.py", BUILD, BINARY, out],
        check=True, env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
    )
    return out / "sbom.spdx.json"


class SbomTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.out = pathlib.Path(folder.name)
        cls.file = write(cls.out)
        cls.document = json.loads(cls.file.read_text(encoding="utf-8"))
        cls.packages = {package["name"]: package for package in cls.document["packages"]}

    def test_document_is_valid(self):
        self.assertEqual(self.document["spdxVersion"], "SPDX-2.3")
        self.assertEqual([m.validation_message for m in validate_full_spdx_document(parse_file(str(self.file)))], [])

    def test_validation_notices_a_broken_document(self):
        broken = {**self.document, "relationships": []}
        broken["packages"] = [{**p, "downloadLocation": "nowhere"} for p in broken["packages"]]
        path = self.out / "broken.spdx.json"
        path.write_text(json.dumps(broken), encoding="utf-8")
        self.assertNotEqual(validate_full_spdx_document(parse_file(str(path))), [])

    def test_libraries_by_which_the_project_stands_are_named(self):
        # Linked, compiled in as headers, and the compiler's own.
        for name in ("grpc", "protobuf", "abseil", "openssl", "zlib", "c-ares", "highway", "nlohmann-json3", "gcc-12"):
            self.assertIn(name, self.packages)
        for name in ("glibc", "linux", "googletest", "benchmark"):
            self.assertNotIn(name, self.packages)

    def test_cuda_is_named_exactly_when_the_binary_has_it(self):
        sections = subprocess.run(["readelf", "-SW", BINARY], check=True, capture_output=True, text=True).stdout
        self.assertEqual("cuda-cudart" in self.packages, ".nv_fatbin" in sections)

    def test_each_package_has_version_and_licence_and_a_text_where_one_is_asked_for(self):
        for name, package in self.packages.items():
            self.assertTrue(package["versionInfo"], name)
            self.assertNotIn(package["licenseDeclared"], ("", "NOASSERTION"), name)
            if "externalRefs" in package and package["licenseDeclared"] != "BSL-1.0":
                self.assertGreater(len(gzip.decompress((self.out / f"copyright/{name}.gz").read_bytes())), 100, name)

    def test_each_package_is_contained_in_the_described_one(self):
        related = {(r["relationshipType"], r["relatedSpdxElement"]) for r in self.document["relationships"]}
        wanted = {("CONTAINS", p["SPDXID"]) for n, p in self.packages.items() if n != "phasor"}
        self.assertEqual(related, wanted | {("DESCRIBES", "SPDXRef-phasor")})

    def test_checksum_is_the_binary(self):
        (checksum,) = self.packages["phasor"]["checksums"]
        self.assertEqual(checksum["checksumValue"], hashlib.sha256(BINARY.read_bytes()).hexdigest())

    def test_same_build_gives_the_same_document(self):
        with tempfile.TemporaryDirectory() as folder:
            again = write(pathlib.Path(folder))
            self.assertEqual(again.read_bytes(), self.file.read_bytes())


class SyftTest(unittest.TestCase):
    """What an independent tool makes of the document, and of the database that it is from."""

    def setUp(self):
        self.tool = ROOT / "build/.venv/bin/syft"
        if not self.tool.exists():
            self.skipTest("build/.venv/bin/syft is not installed; ./dev test installs it (tests/requirements.txt)")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def found(self, cataloger):
        """What one cataloger of syft finds in the folder."""
        run = subprocess.run(
            [self.tool, "scan", f"dir:{self.folder}", "--override-default-catalogers", cataloger, "-o", "syft-json"],
            check=True, capture_output=True, env=os.environ | {"SYFT_CHECK_FOR_APP_UPDATE": "false", "HOME": str(self.folder)},
        )
        return json.loads(run.stdout)["artifacts"]

    def test_it_reads_every_package_in_the_document(self):
        file = write(self.folder)
        wanted = {(p["name"], p["versionInfo"]) for p in json.loads(file.read_text(encoding="utf-8"))["packages"]}
        self.assertEqual({(a["name"], a["version"]) for a in self.found("sbom-cataloger")}, wanted)

    def test_it_finds_the_same_versions_in_the_database_of_packages(self):
        database = self.folder / "var/lib/dpkg"
        database.mkdir(parents=True)
        shutil.copy("/var/lib/dpkg/status", database)
        installed = set()
        for artifact in self.found("dpkg-db-cataloger"):
            about = artifact["metadata"]
            installed.add((about.get("source") or artifact["name"], about.get("sourceVersion") or artifact["version"]))
        document = json.loads(write(self.folder).read_text(encoding="utf-8"))
        of_debian = {(p["name"], p["versionInfo"]) for p in document["packages"] if p["name"] not in ("phasor", "cuda-cudart")}
        self.assertGreater(len(of_debian), 10)
        self.assertLessEqual(of_debian, installed)


if __name__ == "__main__":
    unittest.main()
