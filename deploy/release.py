#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""release.py [--write]: walks the checklist of a release, one line each: PASS, FAIL, or SKIP with the
reason. Status 1 if a line failed. --write first writes what belongs to the files of `./dev package`:
SHA256SUMS, the bills of materials, the digests of the images, and the provenance. docs/packages.md."""

import contextlib
import datetime
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
IMAGES = ("", "-cuda")  # what follows the version in the tags of the images
BILL = "usr/share/doc/phasor/sbom.spdx.json"  # of an image


class Fail(Exception):
    pass


class Skip(Exception):
    pass


def need(holds, otherwise):
    if not holds:
        raise Fail(otherwise)


class Release:
    """The release of a checkout whose packages are in `out`."""

    def __init__(self, root=ROOT, out=None):
        self.root = root
        self.out = out or root / "build/release/package"
        self.version = re.search(r"^project\(phasor VERSION ([\d.]+)", self._text("CMakeLists.txt"), re.M)[1]

    # --- the sources ------------------------------------------------------------------------------

    def versions(self):
        """CMakeLists.txt has the version; what must repeat it agrees"""
        chart = self._text("deploy/helm/phasor/Chart.yaml")
        said = {
            "Chart.yaml, version": re.search(r"^version: (\S+)", chart, re.M)[1],
            "Chart.yaml, appVersion": re.search(r'^appVersion: "(.*)"', chart, re.M)[1],
            "client/python/phasor/__init__.py": re.search(r'^__version__ = "(.*)"', self._text("client/python/phasor/__init__.py"), re.M)[1],
        }
        wrong = {where: version for where, version in said.items() if version != self.version}
        need(not wrong, f"{wrong}, not {self.version}")
        need("VERSION" in self._text("pyproject.toml") and 'dynamic = ["version"]' in self._text("pyproject.toml"), "pyproject.toml does not read CMakeLists.txt")
        return self.version

    def changelog(self):
        """CHANGELOG.md has a section of this version, and nothing is unreleased"""
        text = self._text("CHANGELOG.md")
        found = re.search(rf"^## {re.escape(self.version)} - \d{{4}}-\d\d-\d\d$", text, re.M)
        need(found, f"no line '## {self.version} - YYYY-MM-DD'; rename '## Unreleased'")
        need("## Unreleased" not in text[: found.start()], "what is under 'Unreleased' belongs to this version")
        return found[0].removeprefix("## ")

    def commit(self):
        """the checkout is clean and its commit has the tag of the version"""
        changed = self._git("status", "--porcelain")
        need(not changed, f"changed: {' '.join(changed.split()[1::2][:5])}")
        tags = self._git("tag", "--points-at", "HEAD").split()
        need(f"v{self.version}" in tags, f"no tag v{self.version} on this commit, tags: {tags}")
        return self._git("rev-parse", "HEAD")

    def tests(self):
        """./dev test --full passed after this commit"""
        result = self.root / "build/test/full.result"
        need(result.exists(), "no result; run ./dev test --full")
        status = result.read_text(encoding="utf-8").split()[0]
        need(status == "0", f"status {status}")
        committed = int(self._git("log", "-1", "--format=%ct"))
        need(result.stat().st_mtime > committed, "the commit is newer than the tests")
        return f"at {datetime.datetime.fromtimestamp(result.stat().st_mtime, datetime.timezone.utc):%Y-%m-%d %H:%M} UTC"

    def wire(self):
        """the wire is compatible with the last release"""
        run = subprocess.run([self.root / "tests/repo/buf_breaking.sh"], capture_output=True, text=True, check=False)
        if run.returncode == 77:
            raise Skip(run.stdout.strip().removeprefix("SKIP: "))
        need(run.returncode == 0, run.stdout.strip())
        return "buf breaking has nothing to complain about"

    # --- the files --------------------------------------------------------------------------------

    def packages(self):
        """packages: two for Debian, tarball and wheel, all of this version"""
        wanted = {f"phasor_{self.version}_*.deb", f"libphasor-dev_{self.version}_*.deb", f"phasor-{self.version}-linux-*.tar.gz", f"phasor_rope-{self.version}-*.whl"}
        missing = [pattern for pattern in wanted if not list(self.out.glob(pattern))]
        need(not missing, f"missing in {self._short(self.out)}: {' '.join(sorted(missing))}; run ./dev package")
        others = [f.name for f in self._packages() if self.version not in f.name]
        need(not others, f"of another version: {' '.join(others)}")
        for wheel in self.out.glob("*.whl"):
            with zipfile.ZipFile(wheel) as inside:
                (metadata,) = [n for n in inside.namelist() if n.endswith(".dist-info/METADATA")]
                said = re.search(r"^Version: (.*)$", inside.read(metadata).decode(), re.M)[1].strip()
            need(said == self.version, f"{wheel.name} says {said}")
        for deb in self.out.glob("*.deb"):
            said = subprocess.run(["dpkg-deb", "-f", deb, "Version"], capture_output=True, text=True, check=True).stdout.strip()
            need(said == self.version, f"{deb.name} says {said}")
        return ", ".join(f.name for f in self._packages())

    def bill(self):
        """the bill of materials is that of the packaged sources"""
        document = json.loads(self._made("phasor.spdx.json"))
        (own,) = [p for p in document["packages"] if p["name"] == "phasor"]
        need(own["versionInfo"] == self.version, f"it is of {own['versionInfo']}")
        return f"{len(document['packages']) - 1} packages of others"

    def image(self):
        """the image is exported, its digests are those of its parts, and its bill of materials has no CUDA"""
        return self._exported("")

    def cuda_image(self):
        """the same for the image with kernels for GPUs, and its bill of materials has CUDA"""
        return self._exported("-cuda")

    def _exported(self, kind):
        name = f"phasor:{self.version}{kind}"
        if not (self.out / f"image{kind}.json").exists():
            raise Skip(f"no image {name} was here; ./dev image {name}{' --cuda wheels' if kind else ''}, then ./dev release")
        said = json.loads(self._made(f"image{kind}.json"))
        folder = self.out / said["folder"]
        digest, layers = parts_of_image(folder)
        need(digest == said["digest"], f"index.json has {digest}")
        for part in (digest, *layers):
            need(sha256(blob(folder, part)) == part.removeprefix("sha256:"), f"{part} is not what its digest says")
        bill = self._made(f"image{kind}.spdx.json")
        need(bill == file_of_image(folder, BILL), "the bill of materials is not the one inside")
        has_cuda = "cuda-cudart" in [p["name"] for p in json.loads(bill)["packages"]]
        need(has_cuda == bool(kind), f"CUDA in the bill of materials: {has_cuda}")
        return f"{said['name']}@{said['digest']}"

    def checksums(self):
        """SHA256SUMS has every file"""
        said = dict(reversed(line.split("  ")) for line in self._made("SHA256SUMS").splitlines())
        need(said == self._sums(), f"differs for {sorted(set(said.items()) ^ set(self._sums().items()))[:3]}")
        return f"{len(said)} files"

    def provenance(self):
        """the provenance names this commit and every file with its checksum"""
        statement = json.loads(self._made("provenance.intoto.json"))
        said = {s["name"]: s["digest"]["sha256"] for s in statement["subject"]}
        files = {name: value for name, value in self._sums().items() if name != "provenance.intoto.json"}
        need(files.items() <= said.items(), f"differs for {sorted(set(files) ^ set(said))}")
        source = statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]
        head = self._git("rev-parse", "HEAD")
        need(source["digest"]["gitCommit"] == head, f"it is of {source['digest']['gitCommit']}")
        return f"{len(said)} subjects, not signed"

    CHECKS = (versions, changelog, commit, tests, wire, packages, bill, image, cuda_image, checksums, provenance)

    # --- writing ----------------------------------------------------------------------------------

    def write(self):
        """Writes what belongs to the packages, in the order in which one needs the other."""
        document = self.root / "build/image/stage/usr/share/doc/phasor/sbom.spdx.json"
        if document.exists():
            shutil.copy(document, self.out / "phasor.spdx.json")
        for kind in IMAGES:
            self._export_image(kind)
        provenance = self.out / "provenance.intoto.json"
        provenance.unlink(missing_ok=True)
        provenance.write_text(json.dumps(self._statement(), indent=1) + "\n", encoding="utf-8")
        sums = "".join(f"{value}  {name}\n" for name, value in self._sums().items())
        (self.out / "SHA256SUMS").write_text(sums, encoding="utf-8")

    def _export_image(self, kind):
        name, folder = f"phasor:{self.version}{kind}", f"phasor-{self.version}-image{kind}"
        buildah = self.root / "deploy/buildah.sh"
        for old in (self.out / f"image{kind}.json", self.out / f"image{kind}.spdx.json", self.out / folder):
            shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)
        try:
            subprocess.run([buildah, "inspect", "--type", "image", name], check=True, capture_output=True)
        except (subprocess.CalledProcessError, FileNotFoundError):
            return
        subprocess.run([buildah, "push", name, f"oci:{self.out / folder}"], check=True, capture_output=True)
        self._describe_image(kind, name, folder)

    def _describe_image(self, kind, name, folder):
        said = {"name": name, "folder": folder, "digest": parts_of_image(self.out / folder)[0]}
        (self.out / f"image{kind}.json").write_text(json.dumps(said) + "\n", encoding="utf-8")
        (self.out / f"image{kind}.spdx.json").write_text(file_of_image(self.out / folder, BILL), encoding="utf-8")

    def _statement(self):
        """An in-toto statement with SLSA's provenance; who publishes the files signs it."""
        subjects = [{"name": name, "digest": {"sha256": value}} for name, value in self._sums().items()]
        for kind in IMAGES:
            if not (self.out / f"image{kind}.json").exists():
                continue
            image = json.loads(self._made(f"image{kind}.json"))
            subjects.append({"name": image["name"], "digest": {"sha256": image["digest"].removeprefix("sha256:")}})
        source = {"uri": "git+" + (self._git("remote", "get-url", "origin", check=False) or "unknown"), "digest": {"gitCommit": self._git("rev-parse", "HEAD")}}
        if not source["uri"].startswith("git+https://") or "@" in source["uri"]:
            source["uri"] = "git+unknown"  # no paths of this machine, no passwords
        bill = self.out / "phasor.spdx.json"
        materials = json.loads(bill.read_text(encoding="utf-8"))["packages"] if bill.exists() else []
        purls = [r["referenceLocator"] for p in materials for r in p.get("externalRefs", []) if r["referenceType"] == "purl"]
        return {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": subjects,
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "buildType": "urn:phasor:dev-package:v1",
                    "externalParameters": {"version": self.version},
                    "resolvedDependencies": [source] + [{"uri": purl} for purl in purls],
                },
                "runDetails": {"builder": {"id": "urn:phasor:builder:local"}},
            },
        }

    # --- help -------------------------------------------------------------------------------------

    def _packages(self):
        return sorted(f for f in self.out.iterdir() if f.suffix in (".deb", ".gz", ".whl"))

    def _sums(self):
        names = sorted(f.name for f in self.out.iterdir() if f.is_file() and f.name != "SHA256SUMS")
        return {name: sha256(self.out / name) for name in names}

    def _made(self, name):
        need((self.out / name).exists(), f"no {name}; run ./dev release")
        return (self.out / name).read_text(encoding="utf-8")

    def _short(self, path):
        return path.relative_to(self.root) if path.is_relative_to(self.root) else path

    def _text(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def _git(self, *arguments, check=True):
        return subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, text=True, check=check).stdout.strip()


def blob(folder, digest):
    return folder / "blobs" / digest.replace(":", "/")


def parts_of_image(folder):
    """The digests of the manifest and of the layers of an image in OCI's format."""
    (manifest,) = json.loads((folder / "index.json").read_text(encoding="utf-8"))["manifests"]
    layers = json.loads(blob(folder, manifest["digest"]).read_text(encoding="utf-8"))["layers"]
    return manifest["digest"], [layer["digest"] for layer in layers]


def file_of_image(folder, path):
    """The text of a file, from the uppermost layer that has it."""
    for layer in reversed(parts_of_image(folder)[1]):
        with tarfile.open(blob(folder, layer)) as inside, contextlib.suppress(KeyError):
            return inside.extractfile(path).read().decode()
    raise Fail(f"{path} is not in the image")


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def walk(release):
    """Prints the list; True if nothing failed."""
    failed = 0
    for check in Release.CHECKS:
        try:
            outcome, seen = "PASS", check(release)
        except Skip as reason:
            outcome, seen = "SKIP", reason
        except (Fail, OSError, ValueError, LookupError) as reason:
            outcome, seen, failed = "FAIL", reason, failed + 1
        print(f"{outcome}  {check.__doc__}: {seen}", flush=True)
    print(f"\nrelease {release.version}: {failed} of {len(Release.CHECKS)} lines failed")
    return not failed


if __name__ == "__main__":
    this = Release()
    if "--write" in sys.argv:
        this.write()
    sys.exit(0 if walk(this) else 1)
