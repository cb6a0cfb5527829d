#!/usr/bin/env python3
"""Prints the table of performance goals; scripts/bench-peers starts it."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from goals import GOALS, Row, Setting  # noqa: E402
from machine import describe  # noqa: E402
from programs import Failed, run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]

HELP = """Builds the benchmarks and the program for this machine, runs them and every other implementation that is here,
and prints a Markdown table of the performance goals with what was measured. Contenders take turns, and each figure is a
ratio inside one such run, so that a slow moment falls on all of them; a quiet machine is needed all the same.

Exit status: 0 when no goal is missed (those that were skipped do not count), 1 when one is or when a program fails,
2 for wrong usage."""

PEERS = """peers:
  OpenBLAS and oneDNN are found by CMake (Debian: libopenblas-dev, libdnnl-dev). The others are named:

  --peer-cmd torch=PYTHON       a Python that can import torch, given bench/peers/torch_moe.py (also tried: python3)
  --peer-cmd llm.c=COMMAND      prints a JSON object with flop_per_second on a line of its own:
                                --peer-cmd llm.c="bench/peers/llm_c path/to/llm.c"
  --peer-cmd llama.cpp=COMMAND  prints one with prefill_tokens_per_second and decode_tokens_per_second:
                                --peer-cmd llama.cpp="bench/peers/llama_cpp.py path/to/llama-bench moe.gguf"
                                where bench/peers/make_gguf.py bench/peers/moe.json moe.gguf wrote the model

  Given twice, a name stands for both, and the better one counts."""

PEER_NAMES = ("torch", "llm.c", "llama.cpp")


def parse(words):
    parser = argparse.ArgumentParser(prog="scripts/bench-peers", description=HELP, epilog=PEERS,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="G1,G3", help="measure these goals alone")
    parser.add_argument("--peer-cmd", action="append", default=[], metavar="NAME=COMMAND", help="see below")
    parser.add_argument("--cores", type=int, metavar="N", help="use so many cores (default: all that are allowed)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write every figure here")
    parser.add_argument("--built", type=pathlib.Path, metavar="DIR",
                        help="use the programs of this build folder (default: builds into build/bench)")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; the figures mean nothing")
    arguments = parser.parse_args(words)

    goals = list(GOALS) if arguments.only is None else arguments.only.split(",")
    for goal in goals:
        if goal not in GOALS:
            parser.error(f"--only: '{goal}' is not one of {', '.join(GOALS)}")
    peers = {name: [] for name in PEER_NAMES}
    for entry in arguments.peer_cmd:
        name, equals, command = entry.partition("=")
        if name not in peers or not equals or not command.strip():
            parser.error(f"--peer-cmd: '{entry}' is not NAME=COMMAND with NAME one of {', '.join(PEER_NAMES)}")
        peers[name].append(command)
    allowed = sorted(os.sched_getaffinity(0))
    if arguments.cores is not None and not 1 <= arguments.cores <= len(allowed):
        parser.error(f"--cores must be from 1 to {len(allowed)}; found {arguments.cores}")
    return arguments, goals, peers, allowed[-(arguments.cores or len(allowed)):]


def say(text):
    print(text, file=sys.stderr, flush=True)


def make(folder, preset, targets):
    """Configures and builds; what the tools say goes to standard error. Raises Failed."""
    configure = ["cmake", "--preset", preset, "-B", folder, "-DSMELT_BUILD_TESTS=OFF", "-DSMELT_BUILD_EXAMPLES=OFF"]
    for command in (configure, ["cmake", "--build", folder, "--target", *targets]):
        if subprocess.run([str(word) for word in command], cwd=ROOT, stdout=sys.stderr, check=False).returncode != 0:
            raise Failed(f"the build in {folder} failed")


def add_installed_torch(peers):
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or shutil.which("python3")
    if python is None or any(command == python for command in peers["torch"]):
        return
    try:
        run([python, "-c", "import torch"])
    except Failed:
        return
    peers["torch"].append(python)


def measure(goals, setting):
    """The rows of the goals, and whether a program failed."""
    rows, failed = [], False
    for goal in goals:
        say(f"bench-peers: {goal}")
        try:
            for row in GOALS[goal](setting):
                rows.append(row)
        except Failed as problem:
            failed = True
            say(f"bench-peers: {goal}: {problem}")
            unfinished = [row for row in rows if row.goal == goal and row.value is None and not row.skipped]
            if not unfinished:
                unfinished = [Row(goal, "a program failed", None, None)]
                rows.extend(unfinished)
            for row in unfinished:
                row.skipped = f"failed: {problem}"
    return rows, failed


def print_table(machine, rows):
    for name, text in machine.items():
        print(f"* {name}: {text}")
    print("\n| goal | what | must | aim | measured | verdict | |\n|---|---|---|---|---|---|---|")
    for row in rows:
        cells = (row.goal, row.what, row.shown(row.must), row.shown(row.aim), row.shown(row.value), row.verdict(),
                 row.note)
        print("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")


def main():
    arguments, goals, peers, cores = parse(sys.argv[1:])
    os.sched_setaffinity(0, set(cores))
    load = os.getloadavg()[0]
    if load > 0.5 * len(cores):
        say(f"bench-peers: the machine is busy (load {load:.1f}); figures will be lower than they could be")
    build = portable = arguments.built
    if build is None:
        build, portable = ROOT / "build" / "bench", ROOT / "build" / "bench-portable"
        try:
            make(build, "native", ["smelt", "smelt_bench_gemm", "smelt_bench_moe_layer", "smelt_bench_decode"])
            if "G13" in goals:
                make(portable, "release", ["smelt_bench_gemm"])
        except Failed as problem:
            say(f"bench-peers: {problem}")
            return 1
    if "G6" in goals:
        add_installed_torch(peers)

    machine = describe(ROOT, build, len(cores), load)
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(build, portable, cores, arguments.quick, peers, pathlib.Path(folder))
        rows, failed = measure(goals, setting)
    if arguments.quick:
        print("A quick run: these figures show that everything runs, and nothing else.\n")
    print_table(machine, rows)
    if arguments.json is not None:
        document = {"machine": machine, "quick": arguments.quick,
                    "rows": [vars(row) | {"verdict": row.verdict()} for row in rows], "figures": setting.figures}
        try:
            arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        except OSError as problem:
            say(f"bench-peers: --json {arguments.json}: {problem.strerror}")
            return 1
    missed = any(row.verdict() == "MISS" for row in rows) and not arguments.quick
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
