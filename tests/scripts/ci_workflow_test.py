#!/usr/bin/env python3
"""Do the commands of the workflow to copy work, and does a broken budget stop them with its numbers?"""

import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMANDS = re.findall(r"^ *- run: (g\+\+ .*)$", (ROOT / "docs" / "ci-budget-check.yml").read_text("utf-8"), re.MULTILINE)
EXAMPLE = (ROOT / "examples" / "budget_check.cpp").read_text("utf-8")


class Workflow(unittest.TestCase):
    def run_commands(self, source):
        """The workflow's compile steps in a folder that looks like its checkout."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "smelt").symlink_to(ROOT)
            (folder / "budget_check.cpp").write_text(source, encoding="utf-8")
            return [subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
                    for command in COMMANDS]

    def test_the_example_passes(self):
        done = self.run_commands(EXAMPLE)
        self.assertEqual(len(done), 2)
        for step in done:
            self.assertEqual(step.returncode, 0, step.stderr)
        self.assertIn("kv_cache", done[1].stdout)

    def test_a_broken_budget_stops_it(self):
        broken = EXAMPLE.replace(".stored = 97", ".stored = 120")
        self.assertNotEqual(broken, EXAMPLE)
        step = self.run_commands(broken)[0]
        self.assertNotEqual(step.returncode, 0)
        for words in ("[smelt-B001]", "params", "6612387840", "tolerance_in_ppm<10000>"):
            self.assertIn(words, step.stderr)


if __name__ == "__main__":
    unittest.main()
