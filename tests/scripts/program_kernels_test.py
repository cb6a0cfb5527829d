#!/usr/bin/env python3
"""Does one file of the program alone name the CPU backend? Any other would compile its kernels again, and with the
little optimisation that commands get."""

import pathlib
import re
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "smelt"
KERNELS = re.compile(r"#include <smelt/(kernels/cpu/backend|smelt)\.hpp>|\bcpu<|\bhost_kernels\b")


class ProgramKernels(unittest.TestCase):
    def test_only_the_host_backend_names_kernels(self):
        found = {path.stem for path in PROGRAM.iterdir() if KERNELS.search(path.read_text(encoding="utf-8"))}
        self.assertEqual(found, {"host_backend"})


if __name__ == "__main__":
    unittest.main()
