#!/usr/bin/env python3
"""Does the translation unit of every header catch a header that hostile macros break, and accept one they do not?"""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

HARDENED = """#pragma once
#include <algorithm>
#include <limits>
inline int least(int a, int b) { return (std::min)(a, b) + (std::numeric_limits<int>::min)(); }
"""
# One use of each hostile name, as a header would write it.
EXPOSED = {
    "min": "inline int pick(int a, int b) { return std::min(a, b); }",
    "max": "inline int pick(int a, int b) { return std::max(a, b); }",
    "I": "template <int I> int pick() { return I; }",
    "small": "inline bool pick(int small) { return small < 1; }",
    "B0": "inline int pick(int B0) { return B0; }",
}


class HeaderUnits(unittest.TestCase):
    def compiles(self, body):
        """(everything.cpp, poisoned.cpp): whether each compiles when the tree's one header is body."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            header = folder / "include" / "smelt" / "a.hpp"
            header.parent.mkdir(parents=True)
            header.write_text(body, encoding="utf-8")
            units = [folder / "everything.cpp", folder / "poisoned.cpp"]
            subprocess.run(["cmake", f"-DINCLUDE_DIR={folder / 'include'}", f"-DHEADERS={header}",
                            f"-DPOISON={ROOT / 'tests' / 'headers' / 'poison.hpp'}", f"-DEVERYTHING={units[0]}",
                            f"-DPOISONED={units[1]}", "-P", ROOT / "cmake" / "header_units.cmake"], check=True)
            return [subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-I", folder / "include", unit],
                                   capture_output=True, check=False).returncode == 0 for unit in units]

    def test_a_hardened_header_passes(self):
        self.assertEqual(self.compiles(HARDENED), [True, True])

    def test_each_exposed_name_is_caught(self):
        for name, line in EXPOSED.items():
            with self.subTest(name):
                self.assertEqual(self.compiles("#pragma once\n#include <algorithm>\n" + line + "\n"), [True, False])


if __name__ == "__main__":
    unittest.main()
