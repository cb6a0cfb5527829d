#!/usr/bin/env python3
"""What do budget checks, matches and trainers cost the compiler?

Compiles an empty translation unit, one that includes only spec and budget and checks 200 architectures, and one that
solves for the partners of the published baselines, with every compiler given, and prints a JSON object for each of the
latter two: processor seconds (the best of several runs), their limit (3 times the empty one plus 0.2 s for the checks,
1 s a match), and, from clang, how many templates were instantiated: that number repeats exactly where seconds do not.
With --trainers also a trainer at -O3 with the kernels of every instruction set (limit: 40 s), of a plain preset and of
one with a compressed visit, and what the trainer of a second preset of other width adds (limit: 15 s). Exit status 1
when a limit is passed.

    bench/compile_cost.py [--architectures 200] [--runs 5] [--slack 1.0] [--trainers] [g++ clang++-19 ...]
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPILERS = ["g++", "clang++-19", "clang++"]


def checked_architectures(count):
    """A plain and a looped architecture by turns, each held against the one before it of its kind."""
    lines = [f"#include <smelt/budget/{name}.hpp>" for name in ("check", "memory", "sparsity")]
    lines.append("using namespace smelt;")
    for i in range(count):
        loop = ", .loop = middle_twice" if i % 2 else ""
        lines.append(
            f"struct a{i} : arch<spec{{.vocab = 32'000, .context = 2'048, .width = {1024 + 8 * i}, .layers = 12,"
            " .attention = {.heads = 20, .kv_heads = 4, .head_dim = 64},"
            f" .experts = {{.stored = {100 + i}, .active = 8, .hidden = 432}}{loop}}}> {{}};")
        other = i - 2 if i > 1 else i
        lines.append(f"static_assert(budgets_match<a{i}, a{other}, "
                     "within{.flops = 10_pct, .params = 10_pct, .kv_cache = 10_pct}>::passed);")
    return "\n".join(lines) + "\n"


MATCHES = """#include <smelt/budget/match.hpp>
#include <smelt/spec/published.hpp>
using namespace smelt;
struct smaller : partner_of<published::smelt_200m_baseline> {};
struct larger : partner_of<published::smelt_600m_baseline> {};
static_assert(budgets_match<smaller, published::smelt_200m_baseline>::passed);
static_assert(budgets_match<larger, published::smelt_600m_baseline>::passed);
"""

TRAINERS = """#include <smelt/budget/presets.hpp>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/default_executor.hpp>
#include <smelt/train/trainer.hpp>
using backend = smelt::cpu<smelt::cpu_default_executor>;
"""


def trainers(*presets):
    return TRAINERS + "".join(f"template class smelt::trainer<smelt::presets::{p}, backend>;\n" for p in presets)


def seconds(compiler, source, runs, *options):
    """Processor seconds of compiling `source` to nothing; the best of `runs`."""
    best = None
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([compiler, "-std=c++20", *options, "-I", ROOT / "include", "-c", "-o", os.devnull, source],
                       check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        best = spent if best is None else min(best, spent)
    return best


def instantiations(compiler, source, folder):
    """Templates that clang instantiates for `source`."""
    output = folder / "trace.o"
    subprocess.run([compiler, "-std=c++20", "-I", ROOT / "include", "-c", "-ftime-trace",
                    "-ftime-trace-granularity=0", "-o", output, source], check=True)
    events = json.loads(output.with_suffix(".json").read_text())["traceEvents"]
    names = ("InstantiateClass", "InstantiateFunction", "InstantiateVariable")
    return sum(event["name"] in names for event in events)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--slack", type=float, default=1.0, help="the limit is multiplied by this")
    parser.add_argument("--trainers", action="store_true", help="also compile trainers: a minute a compiler")
    parser.add_argument("compilers", nargs="*", default=[])
    args = parser.parse_args()
    compilers = args.compilers or [c for c in COMPILERS if shutil.which(c)]
    passed = True
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        empty, checks, matches = (folder / f"{name}.cpp" for name in ("empty", "checks", "matches"))
        empty.write_text("\n")
        checks.write_text(checked_architectures(args.architectures))
        matches.write_text(MATCHES)
        plain, compressed, two = (folder / f"{name}.cpp" for name in ("plain", "compressed", "two"))
        plain.write_text(trainers("nano"))
        compressed.write_text(trainers("micro_latentloop"))
        two.write_text(trainers("nano", "mini"))
        for compiler in compilers:
            name = pathlib.Path(compiler).name
            base = seconds(compiler, empty, args.runs)
            for row, source, limit in (
                ({"name": f"budget_check.compile.{name}", "architectures": args.architectures}, checks, 3 * base + 0.2),
                ({"name": f"match.compile.{name}", "matches": 2}, matches, 2.0)):
                cost = seconds(compiler, source, args.runs)
                row |= {"empty_seconds": round(base, 3), "seconds": round(cost, 3), "limit_seconds": round(limit, 3),
                        "ok": cost <= args.slack * limit}
                if "clang" in name:
                    row["instantiations"] = instantiations(compiler, source, folder)
                print(json.dumps(row))
                passed = passed and row["ok"]
            if args.trainers:
                first = seconds(compiler, plain, 1, "-O3")
                for row, cost, limit in (
                    ({"name": f"trainer.compile.{name}", "preset": "nano"}, first, 40),
                    ({"name": f"trainer.compile.{name}", "preset": "micro-latentloop"},
                     seconds(compiler, compressed, 1, "-O3"), 40),
                    ({"name": f"second_trainer.compile.{name}", "preset": "mini"},
                     seconds(compiler, two, 1, "-O3") - first, 15)):
                    row |= {"seconds": round(cost, 1), "limit_seconds": limit, "ok": cost <= args.slack * limit}
                    print(json.dumps(row))
                    passed = passed and row["ok"]
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
