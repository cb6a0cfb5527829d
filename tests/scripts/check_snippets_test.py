#!/usr/bin/env python3
"""Does the check of the docs' snippets hold on this tree, see each way to break it, and mend what it can?"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHECK = ROOT / "scripts" / "check-snippets"

EXAMPLE = """#include <a>
int main() {
  // [outer]
  int a = 1;
  // [inner]
  if (a)
    a = 2;
  // [/inner]
  return a;
  // [/outer]
}
"""
OUTER = "int a = 1;\nif (a)\n  a = 2;\nreturn a;"
GOOD = f"# Page\n<!-- snippet: examples/a.cpp#outer -->\n```cpp\n{OUTER}\n```\nend\n"


class Snippets(unittest.TestCase):
    def check(self, page, *options):
        """Exit status, messages, and the page afterwards."""
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch)
            (root / "examples").mkdir()
            (root / "docs" / "deep").mkdir(parents=True)
            (root / "examples" / "a.cpp").write_text(EXAMPLE, encoding="utf-8")
            (root / "docs" / "deep" / "page.md").write_text(page, encoding="utf-8")
            done = subprocess.run([sys.executable, CHECK, "--root", root, *options], capture_output=True, text=True,
                                  check=False)
            return done.returncode, done.stdout + done.stderr, (root / "docs" / "deep" / "page.md").read_text("utf-8")

    def test_this_tree(self):
        done = subprocess.run([sys.executable, CHECK], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_agreeing(self):
        self.assertEqual(self.check(GOOD)[:2], (0, "1 snippets agree with their examples\n"))
        self.assertEqual(self.check("no tags\n```cpp\nint x;\n```\n")[0], 0)

    def test_a_difference_is_seen_and_mended(self):
        broken = GOOD.replace("a = 2", "a = 3")
        status, said, _ = self.check(broken)
        self.assertEqual(status, 1)
        self.assertIn("docs/deep/page.md:2: the fence differs from examples/a.cpp", said)
        self.assertEqual(self.check(broken, "--fix")[0], 0)
        self.assertEqual(self.check(broken, "--fix")[2], GOOD)

    def test_an_inner_piece(self):
        page = "<!-- snippet: examples/a.cpp#inner -->\n```cpp\n```\n"
        self.assertEqual(self.check(page, "--fix")[2], page.replace("```cpp\n", "```cpp\nif (a)\n  a = 2;\n"))

    def test_tags_that_cannot_be_followed(self):
        for old, new, reason in (("#outer", "#gone", "must hold one [gone]"), ("a.cpp", "b.cpp", "no file examples/b.cpp"),
                                 ("```cpp\n", "\n", "followed by a code fence"), ("\n```\nend", "", "followed by")):
            status, said, _ = self.check(GOOD.replace(old, new), "--fix")
            self.assertEqual(status, 1)
            self.assertIn(reason, said)


if __name__ == "__main__":
    unittest.main()
