# SPDX-License-Identifier: Apache-2.0
"""Tests deploy/release.py: on a release that is made for the test the whole list passes; each fault
that is planted into it fails the line that is about it, and no other line that could pass."""

import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
import release  # noqa: E402

VERSION = release.Release(ROOT).version
COPIED = ("CMakeLists.txt", "pyproject.toml", "deploy/helm/phasor/Chart.yaml", "client/python/phasor/__init__.py")


def git(root, *arguments):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=root, check=True, capture_output=True)


def a_release(root):
    """A checkout with a tag, a result of tests, and packages."""
    for name in COPIED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "CHANGELOG.md").write_text(f"# Changelog\n\n## {VERSION} - 2026-12-01\n\nFirst version.\n", encoding="utf-8")
    (root / ".gitignore").write_text("/build/\n", encoding="utf-8")
    (root / "tests/repo").mkdir(parents=True)
    breaking = root / "tests/repo/buf_breaking.sh"
    breaking.write_text("#!/bin/sh\necho 'SKIP: no release yet'\nexit 77\n", encoding="utf-8")
    breaking.chmod(0o755)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "x", "--date=2026-01-01T00:00:00Z")
    git(root, "tag", f"v{VERSION}")
    (root / "build/test").mkdir(parents=True)
    (root / "build/test/full.result").write_text("0 100\n", encoding="utf-8")
    out = root / "build/release/package"
    out.mkdir(parents=True)
    for package in ("phasor", "libphasor-dev"):
        tree = root / "build/deb"
        (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
        (tree / "DEBIAN/control").write_text(f"Package: {package}\nVersion: {VERSION}\nArchitecture: amd64\nMaintainer: a\nDescription: x\n", encoding="utf-8")
        subprocess.run(["dpkg-deb", "--build", tree, out / f"{package}_{VERSION}_amd64.deb"], check=True, capture_output=True)
    (out / f"phasor-{VERSION}-linux-x86_64.tar.gz").write_bytes(b"programs")
    with zipfile.ZipFile(out / f"phasor_rope-{VERSION}-cp311-cp311-linux_x86_64.whl", "w") as wheel:
        wheel.writestr(f"phasor_rope-{VERSION}.dist-info/METADATA", f"Name: phasor-rope\nVersion: {VERSION}\n")
    stage = root / "build/image/stage/usr/share/doc/phasor"
    stage.mkdir(parents=True)
    purl = {"referenceType": "purl", "referenceLocator": "pkg:deb/debian/grpc@1.51.1"}
    packages = [{"name": "phasor", "versionInfo": VERSION}, {"name": "grpc", "versionInfo": "1.51.1", "externalRefs": [purl]}]
    (stage / "sbom.spdx.json").write_text(json.dumps({"packages": packages}), encoding="utf-8")
    made = release.Release(root)
    made.write()
    return made


def outcomes(made):
    found = {}
    for check in release.Release.CHECKS:
        try:
            check(made)
            found[check.__name__] = "PASS"
        except release.Skip:
            found[check.__name__] = "SKIP"
        except (release.Fail, OSError, ValueError, LookupError):
            found[check.__name__] = "FAIL"
    return found


def an_image(made, kind, *packages):
    """An image in OCI's format with this bill of materials, as the release exports one; its folder."""
    folder = made.out / f"phasor-{VERSION}-image{kind}"
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def keep(data):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}"}

    def layer(path, text):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as inside:
            about = tarfile.TarInfo(path)
            about.size = len(text)
            inside.addfile(about, io.BytesIO(text))
        return keep(out.getvalue())

    bill = json.dumps({"packages": [{"name": name} for name in packages]}).encode()
    manifest = {"layers": [layer("etc/os-release", b"base"), layer(release.BILL, bill)]}
    (folder / "index.json").write_text(json.dumps({"manifests": [keep(json.dumps(manifest).encode())]}))
    made._describe_image(kind, f"phasor:{VERSION}{kind}", folder.name)
    return folder


class ReleaseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.made = a_release(self.root)
        self.out = self.made.out

    def expect_failures(self, *names):
        self.assertEqual({name for name, outcome in outcomes(self.made).items() if outcome == "FAIL"}, set(names))

    def test_a_whole_release_passes_and_says_what_it_skips(self):
        self.expect_failures()
        self.assertEqual({name for name, outcome in outcomes(self.made).items() if outcome == "SKIP"}, {"wire", "image", "cuda_image"})

    def test_version_that_is_forgotten_in_one_place(self):
        chart = self.root / "deploy/helm/phasor/Chart.yaml"
        chart.write_text(chart.read_text().replace(f'appVersion: "{VERSION}"', 'appVersion: "9.9.9"'))
        self.expect_failures("versions", "commit")  # a change that is not committed, too

    def test_changes_that_are_still_unreleased(self):
        (self.root / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
        git(self.root, "commit", "-qam", "x", "--amend")
        git(self.root, "tag", "-f", f"v{VERSION}")
        self.made.write()
        self.assertEqual(outcomes(self.made)["changelog"], "FAIL")

    def test_commit_without_a_tag(self):
        git(self.root, "tag", "-d", f"v{VERSION}")
        self.expect_failures("commit")

    def test_commit_after_tests_and_packages(self):
        future = {"GIT_COMMITTER_DATE": "2099-01-01T00:00:00Z"}
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "y"]
        subprocess.run(command, cwd=self.root, check=True, env={"PATH": "/usr/bin:/bin"} | future)
        git(self.root, "tag", "-f", f"v{VERSION}")
        self.expect_failures("tests", "provenance")

    def test_tests_that_failed(self):
        (self.root / "build/test/full.result").write_text("8 100\n")
        self.expect_failures("tests")

    def test_package_that_is_missing(self):
        (self.out / f"phasor_{VERSION}_amd64.deb").unlink()
        self.expect_failures("packages", "checksums")

    def test_wheel_of_another_version(self):
        (wheel,) = self.out.glob("*.whl")
        with zipfile.ZipFile(wheel, "w") as inside:
            inside.writestr("phasor_rope.dist-info/METADATA", "Name: phasor-rope\nVersion: 9.9.9\n")
        self.made.write()
        self.expect_failures("packages")

    def test_file_that_was_changed_afterwards(self):
        (tarball,) = self.out.glob("*.tar.gz")
        tarball.write_bytes(b"others")
        self.expect_failures("checksums", "provenance")

    def test_bill_of_another_version(self):
        bill = self.out / "phasor.spdx.json"
        bill.write_text(bill.read_text().replace(f'"{VERSION}"', '"9.9.9"'))
        self.expect_failures("bill", "checksums", "provenance")

    def test_images_with_and_without_cuda(self):
        an_image(self.made, "", "phasor", "grpc")
        an_image(self.made, "-cuda", "phasor", "grpc", "cuda-cudart")
        found = outcomes(self.made)
        self.assertEqual((found["image"], found["cuda_image"]), ("PASS", "PASS"))
        subjects = {s["name"]: s["digest"]["sha256"] for s in self.made._statement()["subject"]}
        for kind in release.IMAGES:
            said = json.loads((self.out / f"image{kind}.json").read_text())
            self.assertEqual(f"sha256:{subjects[f'phasor:{VERSION}{kind}']}", said["digest"])

    def test_image_of_which_a_part_was_changed(self):
        for folder in (an_image(self.made, "", "phasor"), an_image(self.made, "-cuda", "phasor", "cuda-cudart")):
            for part in sorted((folder / "blobs/sha256").iterdir()):
                before = part.read_bytes()
                part.write_bytes(before + b" ")
                kind = folder.name.removeprefix(f"phasor-{VERSION}-image")
                self.assertEqual(outcomes(self.made)["cuda_image" if kind else "image"], "FAIL", part)
                part.write_bytes(before)

    def test_images_under_each_others_tags(self):
        an_image(self.made, "", "phasor", "cuda-cudart")
        an_image(self.made, "-cuda", "phasor")
        found = outcomes(self.made)
        self.assertEqual((found["image"], found["cuda_image"]), ("FAIL", "FAIL"))

    def test_bill_of_materials_of_another_image(self):
        an_image(self.made, "", "phasor")
        (self.out / "image.spdx.json").write_text(json.dumps({"packages": []}))
        self.assertEqual(outcomes(self.made)["image"], "FAIL")

    def test_provenance_names_source_and_materials(self):
        statement = json.loads((self.out / "provenance.intoto.json").read_text())
        source, grpc = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        self.assertEqual((source["uri"], grpc["uri"]), ("git+unknown", "pkg:deb/debian/grpc@1.51.1"))
        self.assertIn("phasor.spdx.json", [s["name"] for s in statement["subject"]])


if __name__ == "__main__":
    unittest.main()
