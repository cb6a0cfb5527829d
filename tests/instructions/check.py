#!/usr/bin/env python3
"""Do the hot kernels still take as many instructions as they took?

Seconds vary with what else a machine does; counts under callgrind repeat. Compares the counts of every kernel with the
table beside this file, which has one column for a compiler and an instruction set. Exit codes: 0 fine, 1 a kernel takes
more than the table says, 2 wrong use, 77 nothing to compare (no valgrind, a compiler without a column, a build that
valgrind cannot run).
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TABLE = pathlib.Path(__file__).with_name("counts.json")
TOLERANCE = 0.03
SKIPPED = 77


def counted(program, instruction_set):
    """The instructions of every kernel under callgrind, by name."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out",
                   program, instruction_set]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"check.py: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
        counts = {}
        for dump in pathlib.Path(folder).iterdir():
            text = dump.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
            if name and total:
                counts[name.group(1)] = int(total.group(1))
        return counts


def problems(expected, found, instruction_set, tolerance=TOLERANCE):
    """What is wrong with the counts that were found, one line each."""
    lines = []
    for kernel in sorted(expected.keys() | found.keys()):
        where = f"{instruction_set} {kernel}"
        if kernel not in found:
            lines.append(f"{where}: expected {expected[kernel]:,} instructions, found no such kernel")
        elif kernel not in expected:
            lines.append(f"{where}: found {found[kernel]:,} instructions, the table has no such kernel")
        elif found[kernel] > expected[kernel] * (1 + tolerance):
            more = 100 * (found[kernel] / expected[kernel] - 1)
            lines.append(f"{where}: expected {expected[kernel]:,} instructions, found {found[kernel]:,}, {more:.1f} % "
                         f"more; at most {100 * tolerance:.0f} % are allowed")
    return lines


def savings(expected, found, instruction_set, tolerance=TOLERANCE):
    """The kernels that take clearly fewer instructions than the table says: worth an update, or they may creep back."""
    return [f"{instruction_set} {kernel}: expected {expected[kernel]:,} instructions, found {found[kernel]:,}"
            for kernel in sorted(expected.keys() & found.keys())
            if found[kernel] < expected[kernel] * (1 - tolerance)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the built kernels program")
    parser.add_argument("--table", type=pathlib.Path, default=TABLE, help="default: counts.json beside this file")
    parser.add_argument("--update", action="store_true", help="write what is found into the table")
    arguments = parser.parse_args()

    def skip(reason):
        print(f"skipped: {reason}")
        return SKIPPED

    if shutil.which("valgrind") is None:
        return skip("there is no valgrind; install the package of that name")
    try:
        described = json.loads(subprocess.run([arguments.program, "--describe"], stdout=subprocess.PIPE, text=True,
                                              check=True).stdout)
    except (OSError, subprocess.CalledProcessError, json.JSONDecodeError) as problem:
        print(f"check.py: {arguments.program} --describe must print JSON: {problem}", file=sys.stderr)
        return 2
    compiler, sets = described["compiler"], described["instruction_sets"]
    if not described["countable"]:
        return skip("this build cannot be counted: it has a sanitizer, is made for AVX-512, or lacks callgrind.h")
    if not sets:
        return skip("this build has no instruction set that valgrind knows")
    table = json.loads(arguments.table.read_text()) if arguments.table.exists() else {}
    if compiler not in table and not arguments.update:
        return skip(f"the table has no column for {compiler}, only for {', '.join(table) or 'none'}; "
                    "add it with --update")

    found = {instruction_set: counted(arguments.program, instruction_set) for instruction_set in sets}
    for instruction_set, counts in found.items():
        if not counts:
            print(f"check.py: callgrind counted no kernel of {instruction_set}", file=sys.stderr)
            return 2
    if arguments.update:
        table.setdefault(compiler, {}).update(found)
        arguments.table.write_text(json.dumps(table, indent=2, sort_keys=True) + "\n")
        print(f"wrote {sum(len(c) for c in found.values())} counts of {compiler} to {arguments.table}")
        return 0
    wrong, saved = [], []
    for instruction_set, counts in found.items():
        expected = table[compiler].get(instruction_set, {})
        wrong += problems(expected, counts, instruction_set)
        saved += savings(expected, counts, instruction_set)
    if saved:
        print("fewer instructions than the table says; pin them with --update:")
        print("\n".join(saved))
    if wrong:
        print("\n".join(wrong))
        return 1
    print(f"{sum(len(c) for c in found.values())} counts hold for {compiler}: {', '.join(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
