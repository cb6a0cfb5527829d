"""Tests of scripts/ablation on a program made here that writes figures made here; nothing is trained.

Run: python3 tests/scripts/ablation_test.py
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Trains in no time: the loss is in the seed and the length of the name. Every call is noted.
PROGRAM = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
arguments = sys.argv[1:]
if arguments[0] == "specs":
    def entry(name, partner, group, total):
        return {{"name": name, "description": "the row " + name, "partner_of": partner, "group": group,
                "params": {{"total": total}}}}
    print(json.dumps([entry("micro", "", "Ladder: bases that train", 6_600_000),
                      entry("micro-loop", "micro", "Ladder: bases that train", 6_610_000),
                      entry("micro-s97-smelt", "micro", "Ladder: other sparsities", 1),
                      entry("nano-cut", "nano", "LatentLoop's ablation at the budgets of nano", 1),
                      entry("micro-cut", "micro", "LatentLoop's ablation at the budgets of micro", 6_590_000)]))
    sys.exit(0)
with (here / "calls").open("a") as calls:
    calls.write(" ".join(arguments) + "\\n")
name, seed = arguments[1], int(arguments[arguments.index("--seed") + 1])
if (here / "stop").exists() and name == (here / "stop").read_text():
    sys.exit(130)
if (here / "fail").exists():
    sys.exit(1)
out = pathlib.Path(arguments[arguments.index("--out") + 1])
(out / "step-00000010").mkdir(parents=True)
(out / "log.jsonl").write_text('{{"kind": "step", "tokens": 1000, "flops": 5e9}}\\n'
                               '{{"kind": "final", "tokens": 1000, "flops": 5e9}}\\n')
losses = {{"micro": [2.0, 2.2, 2.4], "micro-loop": [1.9, 2.2, 2.2], "micro-cut": [2.5, 2.5, 2.5]}}
print(json.dumps({{"finished": True, "dtype": "fp32", "instruction_set": "avx2", "tokens_per_second": 12_345.0,
                  "validation": {{"loss": losses[name][seed]}}}}))
"""


class Ablation(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.smelt = self.folder / "smelt"
        self.smelt.write_text(PROGRAM.format(python=sys.executable), encoding="utf-8")
        self.smelt.chmod(0o755)

    def ablation(self, *arguments):
        return subprocess.run([sys.executable, str(ROOT / "scripts" / "ablation"), "--smelt", str(self.smelt), "--out",
                               str(self.folder / "out"), *arguments], capture_output=True, text=True, check=False)

    def calls(self):
        path = self.folder / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def cells(self, text, name):
        line = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
        return [cell.strip() for cell in line.strip("|").split("|")]

    def test_table_has_means_spreads_and_paired_differences(self):
        done = self.ablation("--tokens", "1k")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.calls()), 9)
        base = self.cells(done.stdout, "micro")
        self.assertEqual(base[2:], ["3", "2.2000", "0.2000", "", "", "5 M", "6.6 M", "12.3 k"])
        # Differences -0.1, 0, -0.2: mean -0.1, deviation 0.1, divided by the root of 3.
        self.assertEqual(self.cells(done.stdout, "micro-loop")[2:7], ["3", "2.1000", "0.1732", "-0.1000", "0.0577"])
        self.assertEqual(self.cells(done.stdout, "micro-cut")[2:7], ["3", "2.5000", "0.0000", "+0.3000", "0.1155"])
        for other in ("nano-cut", "micro-s97-smelt"):
            self.assertNotIn(other, done.stdout)
        self.assertIn("smelt train micro-cut --data builtin --tokens 1k --dtype auto --seed 0 --out", done.stdout)
        self.assertEqual((self.folder / "out" / "table.md").read_text(encoding="utf-8"), done.stdout)
        # Checkpoints of finished runs are gone, the log stays.
        self.assertFalse(list(self.folder.glob("out/*/*/step-*")))
        self.assertEqual(len(list(self.folder.glob("out/*/*/log.jsonl"))), 9)

    def test_finished_runs_are_not_trained_again_and_a_stopped_one_goes_on(self):
        (self.folder / "stop").write_text("micro-cut", encoding="utf-8")
        stopped = self.ablation("--seeds", "2")
        self.assertEqual(stopped.returncode, 130)
        self.assertIn("goes on", stopped.stderr)
        self.assertEqual(self.cells(stopped.stdout, "micro")[2:5], ["1", "2.0000", "n/a"])
        self.assertEqual(self.cells(stopped.stdout, "micro-loop")[5:7], ["-0.1000", "n/a"])
        self.assertEqual(self.cells(stopped.stdout, "micro-cut")[2], "0")
        (self.folder / "stop").unlink()
        before = len(self.calls())
        done = self.ablation("--seeds", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.calls()) - before, 4)
        self.assertTrue(all("--resume" in call for call in self.calls()))
        self.assertEqual(self.ablation("--seeds", "2", "--report").stdout, done.stdout)
        self.assertEqual(len(self.calls()), before + 4)

    def test_rows_can_be_chosen_and_options_handed_on(self):
        done = self.ablation("--rows", "micro-cut", "--seeds", "1", "--keep-checkpoints", "--", "--sequences", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([call.split()[1] for call in self.calls()], ["micro", "micro-cut"])
        self.assertTrue(all("--sequences 4" in call for call in self.calls()))
        self.assertEqual(len(list(self.folder.glob("out/*/*/step-*"))), 2)
        self.assertNotIn("micro-loop", done.stdout)

    def test_commands_are_printed_without_training(self):
        done = self.ablation("--commands", "--seeds", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 6)
        self.assertEqual(self.calls(), [])

    def test_what_cannot_go_on_is_named(self):
        self.assertIn("no row micro-new", self.ablation("--rows", "micro-new").stderr)
        self.assertIn("name of a base; found huge", self.ablation("--size", "huge").stderr)
        self.assertIn("at least 1; found 0", self.ablation("--seeds", "0").stderr)
        self.assertEqual(self.ablation("--seeds", "1", "--tokens", "1k").returncode, 0)
        other = self.ablation("--seeds", "1", "--tokens", "2k")
        self.assertEqual(other.returncode, 2)
        self.assertIn("holds another run: smelt train micro", other.stderr)
        (self.folder / "fail").write_text("", encoding="utf-8")
        failed = self.ablation("--seeds", "2", "--tokens", "1k")
        self.assertEqual(failed.returncode, 2)
        self.assertIn("--seed 1", failed.stderr)


if __name__ == "__main__":
    unittest.main()
