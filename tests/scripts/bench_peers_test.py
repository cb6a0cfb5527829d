"""Tests of scripts/bench-peers on programs made here that print figures made here; nothing is built or measured.

Run: python3 tests/scripts/bench_peers_test.py
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import goals  # noqa: E402
import programs  # noqa: E402


def gemm_document(ours, theirs):
    """Figures as bench/gemm writes them: every library at one share of the peak, in two layer shapes."""
    entries = []
    for library, value in {"smelt": ours, **theirs}.items():
        for weights in ("hot", "cold"):
            for tokens in (8, 16, 32, 64, 128, 256):
                for depth in (256, 512):
                    entries.append({"library": library, "weights": weights, "tokens": tokens, "depth": depth,
                                    "windows": [value, value, 9.0]})  # a window that went wrong
    return {"benchmarks": entries, "libraries": {name: f"{name} 1.0, tuned" for name in theirs}}


STEP = {"of_peak": 0.6, "tokens_per_second": 5000.0, "flop_per_second": 3e11, "tokens_per_step": 4096.0, "threads": 1,
        "allocations_per_step": 0.0, "faults_per_step": 101.0, "tokens_per_second_ratio": 1.5,
        "flop_per_second_ratio": 0.97}

LAYER = {"benchmarks": [{"type": "fp32", "cores": 1, "tokens": 512, "of_peak": 0.8},
                        {"type": "bf16", "cores": 1, "tokens": 512, "of_peak": 1.4}]}


class Programs(unittest.TestCase):
    """A test with a build folder of programs that write or print what they are told to."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.build = self.folder / "build"
        (self.build / "bench").mkdir(parents=True)
        (self.build / "tools").mkdir()
        (self.build / "CMakeCache.txt").write_text(
            "CMAKE_CXX_COMPILER:FILEPATH=no-such-compiler\nCMAKE_BUILD_TYPE:STRING=Release\n"
            "CMAKE_CXX_FLAGS:STRING=\nCMAKE_CXX_FLAGS_RELEASE:STRING=-O3 -march=native\n", encoding="utf-8")
        self.write_bench("gemm", gemm_document(0.9, {"onednn": 0.8, "eigen": 0.75}))
        self.write_bench("moe_layer", LAYER)
        self.command("tools/smelt", f"echo '{json.dumps(STEP)}'")

    def command(self, name, script):
        path = self.build / name
        path.write_text("#!/bin/sh\n" + script + "\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def write_bench(self, name, document):
        data = self.folder / f"{name}.made.json"
        data.write_text(json.dumps(document), encoding="utf-8")
        self.command(f"bench/{name}", f'while [ "$1" != --json ]; do shift; done; cat {data} > "$2"')

    def setting(self, **peers):
        named = {name.replace("_", "."): commands for name, commands in peers.items()}
        return goals.Setting(self.build, self.build, [min(os.sched_getaffinity(0))], False, named, self.folder)

    def rows(self, goal, **peers):
        return list(goals.GOALS[goal](self.setting(**peers)))

    def report(self, *words):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run([ROOT / "scripts" / "bench-peers", *words], capture_output=True, text=True, check=False,
                              env=environment)


class Verdicts(unittest.TestCase):
    def test_shares_and_ratios_must_reach(self):
        for value, verdict in ((0.79, "MISS"), (0.80, "pass"), (0.89, "pass"), (0.90, "aim reached")):
            self.assertEqual(goals.Row("G", "", 0.8, 0.9, value=value).verdict(), verdict)

    def test_counts_must_not_exceed(self):
        for value, verdict in ((0, "aim reached"), (100, "pass"), (101, "MISS")):
            self.assertEqual(goals.Row("G", "", 100, 0, "n", value=value).verdict(), verdict)

    def test_shares_of_time_must_not_exceed(self):
        for value, verdict in ((0.5, "aim reached"), (0.53, "pass"), (0.54, "MISS")):
            self.assertEqual(goals.Row("G", "", 0.53, 0.5, "<", value=value).verdict(), verdict)

    def test_what_was_not_measured_is_neither(self):
        self.assertEqual(goals.Row("G", "", 0.8, 0.9, skipped="why").verdict(), "skipped: why")
        self.assertEqual(goals.Row("G", "", 0.8, 0.9, skipped="failed: how").verdict(), "failed: how")


class Goals(Programs):
    def test_medians_survive_a_wrong_window(self):
        (row,) = self.rows("G1")
        self.assertAlmostEqual(row.value, 0.9)
        self.assertEqual(row.verdict(), "pass")

    def test_the_worst_number_of_tokens_counts(self):
        document = gemm_document(0.9, {})
        for entry in document["benchmarks"]:
            if entry["weights"] == "hot" and entry["tokens"] in (8, 32):
                entry["windows"] = [0.5 if entry["tokens"] == 32 else 0.1] * 3
        self.write_bench("gemm", document)
        (row,) = self.rows("G1")
        self.assertAlmostEqual(row.value, 0.5)  # 8 tokens are no part of the goal
        self.assertIn("worst at 32 tokens", row.note)

    def test_libraries_that_are_missing_are_skipped(self):
        rows = {(row.what.split("against ")[1], "hot" in row.what): row for row in self.rows("G3")}
        self.assertAlmostEqual(rows["oneDNN, packed beforehand", True].value, 0.9 / 0.8)
        self.assertEqual(rows["Eigen", False].verdict(), "MISS")
        self.assertIn("skipped", rows["OpenBLAS", True].verdict())

    def test_layers_are_judged_in_float32(self):
        (row,) = self.rows("G4")
        self.assertEqual(row.value, 0.8)

    def test_steps(self):
        self.assertEqual([row.verdict() for row in self.rows("G5")], ["pass"])
        self.assertEqual([row.verdict() for row in self.rows("G7")], ["pass"])
        self.assertEqual([row.verdict() for row in self.rows("G10")], ["skipped: one core"] * 2)
        self.assertEqual([row.verdict() for row in self.rows("G11")], ["aim reached", "MISS"])
        self.assertEqual([row.verdict() for row in self.rows("G12")], ["pass"])

    def test_a_visit_is_what_it_adds_to_a_step(self):
        def step(time, flop):
            return f"echo '{json.dumps({'of_peak': flop / time, 'flop_per_step': flop})}';;"

        self.command("tools/smelt", f"""case "$2" in
            */moe.json) {step(1.0, 10)}
            */full.json) {step(2.0, 20)}
            *latent.json) {step(1.54, 15)}
            *units.json) {step(1.59, 15)}
            *) {step(1.61, 15)}
            esac""")
        fp32, bf16 = self.rows("G14")[:4], self.rows("G14")[4:]
        for rows in (fp32, bf16):
            self.assertEqual([row.verdict() for row in rows], ["MISS", "MISS", "pass", "MISS"])
        self.assertAlmostEqual(fp32[0].value, 0.54)
        self.assertEqual(fp32[0].note, "50.0 % of its FLOPs")

    def test_the_better_of_two_peers_counts(self):
        commands = [str(self.command(name, f"echo noise; echo '{{\"flop_per_second\": {rate}}}'"))
                    for name, rate in (("slow", 1e10), ("fast", 3e10))]
        (row,) = self.rows("G8", llm_c=commands)
        self.assertAlmostEqual(row.value, 10)
        self.assertEqual(row.verdict(), "pass")

    def test_reading_and_writing_are_compared_each(self):
        self.write_bench("decode", {"prefill_tokens_per_second": 60.0, "decode_tokens_per_second": 6.0})
        peer = self.command("peer", 'echo \'{"prefill_tokens_per_second": 10, "decode_tokens_per_second": 5}\'')
        self.assertEqual([(row.value, row.verdict()) for row in self.rows("G9", llama_cpp=[str(peer)])],
                         [(6.0, "aim reached"), (1.2, "MISS")])

    def test_a_peer_that_is_missing_is_skipped(self):
        self.assertEqual([row.verdict() for row in self.rows("G9")], ["skipped: no --peer-cmd llama.cpp=COMMAND"] * 2)
        self.assertEqual([row.verdict() for row in self.rows("G8")], ["skipped: no --peer-cmd llm.c=COMMAND"])

    def test_a_peer_that_prints_something_else_fails(self):
        for script in ("echo 5", "echo '{\"seconds\": 5}'", "exit 3"):
            with self.assertRaises(programs.Failed):
                self.rows("G8", llm_c=[str(self.command("odd", script))])

    def test_a_wrong_baseline_product_is_a_miss(self):
        working = self.folder / "gemm.made.json"
        self.command("bench/gemm", f'case "$*" in *baseline*) echo wrong >&2; exit 1;; esac;'
                                   f'while [ "$1" != --json ]; do shift; done; cat {working} > "$2"')
        self.assertEqual([row.verdict() for row in self.rows("G13")], ["aim reached", "MISS"])

    def test_an_instruction_set_that_is_missing_is_skipped(self):
        self.command("bench/gemm", "echo \"gemm: this machine does not have the instruction set 'avx2'\" >&2; exit 1")
        avx2, baseline = self.rows("G13")
        self.assertIn("skipped", avx2.verdict())
        self.assertEqual(baseline.verdict(), "MISS")

    def test_no_peer_gets_another_processors_kernels(self):
        os.environ["OPENBLAS_CORETYPE"] = "Prescott"
        self.addCleanup(os.environ.pop, "OPENBLAS_CORETYPE", None)
        self.assertEqual(programs.run(["sh", "-c", "echo [$OPENBLAS_CORETYPE]"]).strip(), "[]")


class Report(Programs):
    def test_a_table_and_its_exit_status(self):
        done = self.report("--built", self.build, "--only", "G1,G4", "--json", self.folder / "out.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| G1 | expert GEMM, fp32, hot, 16 to 256 tokens, of peak | 88.0 % | 93.0 % | 90.0 % | pass |",
                      done.stdout)
        self.assertIn("flags: -O3 -march=native", done.stdout)
        document = json.loads((self.folder / "out.json").read_text(encoding="utf-8"))
        self.assertEqual([row["verdict"] for row in document["rows"]], ["pass", "pass"])

    def test_a_miss_is_exit_status_1_unless_quick(self):
        self.assertEqual(self.report("--built", self.build, "--only", "G11").returncode, 1)
        self.assertEqual(self.report("--built", self.build, "--only", "G11", "--quick").returncode, 0)

    def test_a_program_that_fails_is_named_and_the_rest_goes_on(self):
        self.command("bench/moe_layer", "echo it broke >&2; exit 4")
        done = self.report("--built", self.build, "--only", "G4,G1", "--quick")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"G4 .*failed: .*moe_layer.* exited with 4: it broke")
        self.assertIn("| G1 |", done.stdout)

    def test_wrong_usage(self):
        for words, named in ((["--only", "G99"], "G99"), (["--peer-cmd", "other=x"], "other=x"),
                             (["--peer-cmd", "torch"], "torch"), (["--cores", "0"], "0")):
            done = self.report(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(named, done.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
