# SPDX-License-Identifier: Apache-2.0
"""The documentation site builds, with every page, and a broken link is found. Skipped, exit status 77, where its tools are not
installed (docs/site/requirements.txt)."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build/.venv/bin/python"
SKIP = 77

sys.path[:0] = [str(ROOT / "docs/site")]
import headers
import pages


def tools_are_there():
    check = [str(PYTHON), "-c", "import google.protobuf, material, mkdocs"]
    return PYTHON.exists() and subprocess.run(check, capture_output=True, check=False).returncode == 0


def build(out):
    return subprocess.run([str(PYTHON), str(ROOT / "docs/site/build.py"), out], capture_output=True, text=True, check=False)


class SiteTest(unittest.TestCase):
    def test_every_page_is_in_the_site(self):
        with tempfile.TemporaryDirectory() as out:
            run = build(out)
            self.assertEqual(run.returncode, 0, run.stderr)
            site = pathlib.Path(out, "site")
            for name in pages.names(ROOT):
                html = pathlib.Path(name.replace("README.md", "index.md")).with_suffix(".html")
                self.assertTrue((site / html).exists(), name)
            proto = (site / "reference/phasor.v1.position_embedding_service.html").read_text(encoding="utf-8")
            for word in ("ApplyRoPE", "EncodeRequest", 'id="phasor.v1.ApplyRoPEItem"'):
                self.assertIn(word, proto)
            self.assertIn("AllocateShared", (site / "reference/cpp/client.html").read_text(encoding="utf-8"))

    def test_a_link_to_no_file_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "README.md").write_text("[a](docs/gone.md)\n", encoding="utf-8")
            with self.assertRaises(pages.Broken):
                pages.pages(root)

    def test_a_link_to_no_heading_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder, "copy")
            for part in ("docs/site", "docs/adr", "proto", "client"):
                (copy / part).parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "-r", str(ROOT / part), str((copy / part).parent)], check=True)
            (copy / "docs/client.md").write_text("# Client\n", encoding="utf-8")
            (copy / "README.md").write_text("# A\n\n[b](docs/client.md#gone)\n", encoding="utf-8")
            for page in pages.names(copy):
                if page not in ("README.md", "docs/client.md"):
                    (copy / page).write_text("# Empty\n", encoding="utf-8")
            run = subprocess.run([str(PYTHON), str(copy / "docs/site/build.py"), str(copy / "out")], capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 1)
            self.assertIn("'docs/client.md#gone'", run.stderr)


class PagesTest(unittest.TestCase):
    def test_links_to_files_lead_to_pages_that_show_them(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            (root / "a.h").write_text("int a;\n", encoding="utf-8")
            (root / "docs/b.md").write_text("[h](../a.h#L1) [d](../docs) [w](https://example.org)\n", encoding="utf-8")
            found = pages.pages(root)
            self.assertEqual(found["docs/b.md"], "[h](../files/a.h.md) [d](index.md) [w](https://example.org)\n")
            self.assertIn("int a;", found["files/a.h.md"])


class HeadersTest(unittest.TestCase):
    def test_private_members_and_bodies_are_left_out(self):
        code = "class A {\n public:\n  int f() const { return 1; }\n  int x = {};\n  A(int a) : x(a) {}\n\n private:\n  int y_;\n};"
        self.assertEqual(headers.public(code), "class A {\n public:\n  int f() const;\n  int x = {};\n  A(int a);\n};")

    def test_a_header_is_its_comment_and_its_declarations(self):
        about, declarations = headers.split("// SPDX-License-Identifier: x\n// About.\n#include <a>\n\nnamespace n {\n\n// Of B.\nstruct B {\n  int c = 0;\n};\n\n// Of f.\nint f(int a,\n      int b);\n\n}  // namespace n\n")  # fmt: skip
        self.assertEqual(about, "About.")
        self.assertEqual(declarations, [("Of B.", "struct B {\n  int c = 0;\n};"), ("Of f.", "int f(int a,\n      int b);")])


if __name__ == "__main__":
    if not tools_are_there():
        print("SKIP: the tools of the site are not installed; ./dev test and ./dev docs install them (docs/site/requirements.txt)")
        sys.exit(SKIP)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    unittest.main()
