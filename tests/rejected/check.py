#!/usr/bin/env python3
"""Does a source that must not compile fail, and does it say why?

A source opens with its expectations:

    // expect: REGEX        must be found in what the compiler prints; every one is required. The first one must be
                            found in the first error: that is the one people read.
    // expect-gcc: REGEX    the same, for one compiler only (gcc, clang, nvcc)
    // max-lines: N         the first error, with its notes and context, takes at most N lines (default 12)

and holds a control: with CONTROL defined it must compile without a warning.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wno-sign-conversion", "-Werror"]
ERROR = re.compile(r"(?:^|: |\): )(?:fatal )?error(?:: | ?#?\d*-?\w*: )")
# Lines that a compiler prints before the error they belong to.
CONTEXT = re.compile(r"In file included from|In instantiation of|In substitution of|^\s+from |required from|required by"
                     r"|: At global scope|: In (?:member )?function|recursively required|In static member|: In lambda")
DEFAULT_MAX_LINES = 12
SECONDS = 120


class Expectations:
    """What the comments at the top of a source ask for, for one kind of compiler."""

    def __init__(self, text, kind):
        self.patterns = []
        self.max_lines = DEFAULT_MAX_LINES
        for line in text.splitlines():
            found = re.match(r"//\s*(expect(?:-(\w+))?|max-lines):\s*(.*?)\s*$", line)
            if not found:
                continue
            key, only, value = found.groups()
            if key == "max-lines":
                self.max_lines = int(value)
            elif only is None or only == kind:
                self.patterns.append(value)


def kind_of(compiler):
    """gcc, clang or nvcc, from the name of the program."""
    name = os.path.basename(compiler)
    for kind in ("nvcc", "clang"):
        if kind in name:
            return kind
    return "gcc"


def first_error(output):
    """The lines of the first error, its context before and its notes after."""
    lines = output.splitlines()
    starts = [number for number, line in enumerate(lines) if ERROR.search(line)]
    if not starts:
        return []
    end = starts[1] if len(starts) > 1 else len(lines)
    while end - 1 > starts[0] and CONTEXT.search(lines[end - 1]):
        end -= 1
    # A count of the errors closes clang's and nvcc's output; it is not part of any of them.
    return [line for line in lines[:end] if not re.match(r"\d+ errors? (?:generated|detected)", line) and line.strip()]


def compile_source(args, extra):
    """Exit status and everything printed."""
    command = [args.compiler, "-std=c++20"]
    for folder in args.include:
        command += ["-I", folder]
    for folder in args.system:
        command += ["-isystem", folder]
    environment = dict(os.environ, LC_ALL="C")
    with tempfile.TemporaryDirectory() as scratch:
        if kind_of(args.compiler) == "nvcc":
            command += ["-x", "cu", "-c", "-o", os.path.join(scratch, "out.o")]
        else:
            command += ["-fsyntax-only", *WARNINGS]
        done = subprocess.run([*command, *extra, args.source], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=SECONDS, env=environment, check=False)
    return done.returncode, done.stdout


def problems_of(args):
    """Every way in which the source misses its expectations, and what the compiler printed."""
    with open(args.source, encoding="utf-8") as file:
        text = file.read()
    expectations = Expectations(text, kind_of(args.compiler))
    problems = []
    if not expectations.patterns:
        problems.append("no '// expect: REGEX' line")
    if not re.search(r"^\s*#\s*(?:ifdef CONTROL|ifndef CONTROL|if !?defined\(CONTROL\))", text, re.MULTILINE):
        problems.append("no control: '#ifdef CONTROL' must choose a version that compiles")
    if problems:
        return problems, ""

    status, output = compile_source(args, ["-DCONTROL"])
    if status != 0:
        return ["the control does not compile"], output

    status, output = compile_source(args, [])
    if status == 0:
        return ["it compiles, and must not"], output
    error = first_error(output)
    if not error:
        return ["the compiler failed without an error"], output
    for pattern in expectations.patterns:
        if not re.search(pattern, output):
            problems.append(f"not printed: {pattern}")
    if not re.search(expectations.patterns[0], "\n".join(error)):
        problems.append(f"not in the first error: {expectations.patterns[0]}")
    if len(error) > expectations.max_lines:
        problems.append(f"the first error takes {len(error)} lines, and must take at most {expectations.max_lines}")
    return problems, output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", action="append", default=[], help="a folder for -I")
    parser.add_argument("--system", action="append", default=[], help="a folder for -isystem")
    parser.add_argument("source")
    args = parser.parse_args()
    problems, output = problems_of(args)
    for problem in problems:
        print(f"{args.source}: {problem}")
    if problems:
        print(output)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
