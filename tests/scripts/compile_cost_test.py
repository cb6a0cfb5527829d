#!/usr/bin/env python3
"""Do budget checks and matches stay cheap for the compiler?

Seconds vary with what else the machine does: they are bench/compile_cost.py's to judge, when it is run alone. The number
of instantiations repeats exactly and is held here.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import unittest

BENCH = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "compile_cost.py"
COMPILERS = [name for name in ("g++", "clang++-19", "clang++") if shutil.which(name)]
INSTANTIATIONS_AN_ARCHITECTURE = 5


def measure(*arguments):
    done = subprocess.run([sys.executable, BENCH, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


class CompileCost(unittest.TestCase):
    def test_two_hundred_architectures_stay_below_the_count(self):
        self.assertTrue(COMPILERS)
        status, rows = measure("--runs", "1", "--slack", "1000", *COMPILERS[:2])
        self.assertEqual(status, 0, rows)
        names = {row["name"] for row in rows}
        self.assertEqual(names, {f"{what}.compile.{compiler}" for what in ("budget_check", "match")
                                 for compiler in COMPILERS[:2]})
        for row in rows:
            self.assertLessEqual(row.get("instantiations", 0), 200 * INSTANTIATIONS_AN_ARCHITECTURE, row)

    def test_a_limit_that_is_passed_is_reported(self):
        status, rows = measure("--runs", "1", "--slack", "0.01", COMPILERS[0])
        self.assertEqual(status, 1)
        self.assertFalse(rows[0]["ok"])


if __name__ == "__main__":
    unittest.main()
