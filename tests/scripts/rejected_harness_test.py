#!/usr/bin/env python3
"""Does the harness for must-not-compile tests fail when it should? Each case breaks one promise of a good test."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parent.parent / "rejected" / "check.py"

GOOD = r"""// expect: \[demo-1\] heads must be even
// expect: odd<15>
template <int N> struct odd { static_assert(N % 2 == 0, "[demo-1] heads must be even; change heads"); };
#ifdef CONTROL
constexpr int heads = 16;
#else
constexpr int heads = 15;
#endif
odd<heads> instance;
"""


class Harness(unittest.TestCase):
    def judge(self, text):
        """Exit status and output of the harness on a source, the same under each compiler found."""
        results = []
        for compiler in ("g++", "clang++-19"):
            if shutil.which(compiler) is None:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                source = pathlib.Path(scratch) / "source.cpp"
                source.write_text(text, encoding="utf-8")
                done = subprocess.run([sys.executable, CHECK, "--compiler", compiler, source], capture_output=True,
                                      text=True, check=False)
            results.append((done.returncode, done.stdout + done.stderr))
        self.assertTrue(results, "no compiler found")
        self.assertEqual(len({status for status, _ in results}), 1, results)
        return results[0]

    def assert_caught(self, text, words):
        self.assertNotEqual(text, GOOD)
        status, output = self.judge(text)
        self.assertEqual(status, 1, output)
        self.assertIn(words, output)

    def test_a_good_source_passes(self):
        status, output = self.judge(GOOD)
        self.assertEqual(status, 0, output)

    def test_a_source_that_compiles_is_caught(self):
        self.assert_caught(GOOD.replace("= 15", "= 14"), "it compiles, and must not")

    def test_a_control_that_does_not_compile_is_caught(self):
        self.assert_caught(GOOD.replace("= 16", "= 17"), "the control does not compile")

    def test_a_control_with_a_warning_is_caught(self):
        self.assert_caught(GOOD.replace("heads = 16;", "heads = 16; extern long big; int narrow = big;"), "the control does not compile")

    def test_a_missing_control_is_caught(self):
        self.assert_caught(GOOD.replace("#ifdef CONTROL", "#ifdef OTHER"), "no control")

    def test_missing_expectations_are_caught(self):
        self.assert_caught(GOOD.replace("// expect:", "// note:"), "no '// expect: REGEX' line")

    def test_every_expectation_is_required(self):
        self.assert_caught(GOOD.replace("odd<15>\n", "odd<13>\n", 1), "not printed: odd<13>")

    def test_the_first_expectation_belongs_to_the_first_error(self):
        text = GOOD.replace("template", "int early = nowhere;\ntemplate").replace("int early", "#ifndef CONTROL\nint early", 1)
        self.assert_caught(text.replace("nowhere;\n", "nowhere;\n#endif\n"), "not in the first error")

    def test_a_long_error_is_caught(self):
        self.assert_caught("// max-lines: 1\n" + GOOD, "must take at most 1")

    def test_an_expectation_for_another_compiler_is_not_required(self):
        status, output = self.judge("// expect-nvcc: only there\n" + GOOD)
        self.assertEqual(status, 0, output)


if __name__ == "__main__":
    unittest.main()
