#!/usr/bin/env python3
"""Does the check of instruction counts tell a regression from noise, and does it say when it cannot compare?"""

import importlib.util
import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parent.parent / "instructions" / "check.py"
specification = importlib.util.spec_from_file_location("check", CHECK)
check = importlib.util.module_from_spec(specification)
specification.loader.exec_module(check)


class Comparison(unittest.TestCase):
    def test_counts_within_the_tolerance_hold(self):
        self.assertEqual(check.problems({"linear": 1000}, {"linear": 1030}, "avx2"), [])
        self.assertEqual(check.problems({"linear": 1000}, {"linear": 500}, "avx2"), [])

    def test_a_regression_names_kernel_expected_and_found(self):
        found = check.problems({"linear T8": 1000, "norm": 10}, {"linear T8": 1031, "norm": 10}, "avx2")
        self.assertEqual(found, ["avx2 linear T8: expected 1,000 instructions, found 1,031, 3.1 % more; "
                                 "at most 3 % are allowed"])

    def test_kernels_that_come_or_go_are_problems(self):
        self.assertEqual(len(check.problems({"a": 1}, {"b": 1}, "avx2")), 2)

    def test_savings_are_those_beyond_the_tolerance(self):
        expected = {"a": 1000, "b": 1000, "c": 1000}
        self.assertEqual(check.savings(expected, {"a": 969, "b": 971, "c": 1100}, "avx2"),
                         ["avx2 a: expected 1,000 instructions, found 969"])


class Program(unittest.TestCase):
    def run_with(self, described, table):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "kernels"
            program.write_text(f"#!/bin/sh\necho '{described}'\n")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            columns = pathlib.Path(folder) / "counts.json"
            columns.write_text(json.dumps(table))
            done = subprocess.run([sys.executable, CHECK, program, "--table", columns], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            return done.returncode, done.stdout

    @unittest.skipIf(check.shutil.which("valgrind") is None, "there is no valgrind")
    def test_another_compiler_is_skipped_by_name(self):
        described = json.dumps({"compiler": "cc 1", "countable": True, "instruction_sets": ["avx2"]})
        status, said = self.run_with(described, {"g++ 12.2.0": {}})
        self.assertEqual(status, check.SKIPPED)
        self.assertIn("cc 1", said)
        self.assertIn("g++ 12.2.0", said)

    @unittest.skipIf(check.shutil.which("valgrind") is None, "there is no valgrind")
    def test_a_build_that_cannot_be_counted_is_skipped(self):
        described = json.dumps({"compiler": "cc 1", "countable": False, "instruction_sets": ["avx2"]})
        status, said = self.run_with(described, {"cc 1": {}})
        self.assertEqual(status, check.SKIPPED)
        self.assertIn("cannot be counted", said)

    @unittest.skipIf(check.shutil.which("valgrind") is None, "there is no valgrind")
    def test_a_program_that_says_nothing_is_wrong_use(self):
        status, said = self.run_with("nothing", {})
        self.assertEqual(status, 2)
        self.assertIn("must print JSON", said)


if __name__ == "__main__":
    unittest.main()
