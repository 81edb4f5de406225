# SPDX-License-Identifier: Apache-2.0
"""Which blocks of a page are commands, and what counts as their output."""

import unittest

import blocks


class BlocksTest(unittest.TestCase):
    def commands(self, text):
        return [block.text for block in blocks.blocks(text) if block.is_commands()]

    def test_commands_are_fenced_as_shell_or_begin_with_a_known_program(self):
        self.assertEqual(self.commands("a\n\n    phasor presets\n    phasor health\n\nb\n"), ["phasor presets\nphasor health"])
        self.assertEqual(self.commands("```sh\nls\n```\n```bash\nls -a\n```\n"), ["ls", "ls -a"])
        self.assertEqual(self.commands("```\n# says\nbuild/release/client/cli/phasor\n```"), ["# says\nbuild/release/client/cli/phasor"])
        self.assertEqual(self.commands("    A=1 phasor-server\n"), ["A=1 phasor-server"])

    def test_other_blocks_are_none(self):
        self.assertEqual(self.commands("```cpp\nphasor x;\n```\n\n    phasor-server: wrong\n\n    phasor 0.1.0 up 3s\n\ntext\n    phasor presets\n"), [])

    def test_what_follows_commands_is_their_output(self):
        found = blocks.blocks("    phasor a\n\n```\nout\n```\n\nprose\n\n```\nno output\n```\n")
        self.assertEqual([block.is_output() for block in found], [False, True, False])
        self.assertEqual(found[1].line, 4)

    def test_authors_say_more_in_comments(self):
        block = blocks.blocks("<!-- not run: needs docker -->\n    docker run x\n")[0]
        self.assertEqual(block.marks, {"not run": "needs docker"})
        block = blocks.blocks("<!-- first: touch a -->\n<!-- first: touch b -->\n<!-- exit status: 2 -->\n\n```sh\ncat a\n```\n")[0]
        self.assertEqual(block.marks, {"first": ["touch a", "touch b"], "exit status": "2"})
        self.assertEqual(blocks.blocks("<!-- not run: x -->\nprose\n\n    phasor a\n")[0].marks, {})

    def test_a_console_block_has_commands_and_outputs(self):
        block = blocks.blocks("```console\n$ phasor a \\\n> --b\none\ntwo\n$ phasor c\n```\n")[0]
        self.assertEqual(blocks.console(block), [("phasor a \\\n--b", "one\ntwo"), ("phasor c", None)])

    def test_statements_end_where_the_shell_says(self):
        whole = lambda text: text.count("{") == text.count("}")
        text = "# c\nf() {\n  a\n}\n\nphasor \\\n  --b\nc"
        self.assertEqual(blocks.statements(text, whole), ["f() {\n  a\n}", "phasor \\\n  --b", "c"])

    def test_words_in_capitals_stand_for_something_of_the_readers(self):
        for command in ("phasor --server HOST:50051", "cat MODEL/config.json", "phasor --range 0:TOKENS", "x --set a=NEW", "phasor ..."):
            self.assertIsNotNone(blocks.placeholder(command), command)
        for command in ("issue DNS:a,IP:1", "openssl -CA a -subj /CN=ca", "echo $HOME", "a # NAME", "A_B=1 phasor", "x '{...}' P-256"):
            self.assertIsNone(blocks.placeholder(command.replace("{...}", "{}")), command)

    def test_outputs_are_compared_by_words(self):
        self.assertIsNone(blocks.differs("a  1\nb", "a 1\n\n  b\n", False))
        self.assertIsNotNone(blocks.differs("a 1", "a 2", False))
        self.assertIsNone(blocks.differs("a 1.5 calls/s 3k", "a 22.75 calls/s 11k", True))
        self.assertIsNotNone(blocks.differs("a 1.5 calls", "b 22.75 calls", True))
        self.assertIsNone(blocks.differs("a ... d\n...\nz", "a b c d\nx\ny\nz", False))
        self.assertIsNotNone(blocks.differs("a", "a\nb", False))
        self.assertIsNotNone(blocks.differs("a\nb", "a", False))


if __name__ == "__main__":
    unittest.main()
