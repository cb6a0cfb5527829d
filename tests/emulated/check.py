#!/usr/bin/env python3
"""Are the ops right on processors that this machine is not? Runs the smaller cases of the op table in an emulator, on a
machine that must choose from the stated instruction sets.

Exits with 77, which skips the test, where the emulator or the cross compiler is not installed.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
# What is cross-compiled: the op table and Catch2's main. Threads alone: no library of the other architecture is needed.
SOURCES = ("run/kernels/op_table_test.cpp", "main.cpp")
SKIPPED = 77


def need(program, package):
    """The path of an installed program; without it the test is skipped."""
    found = shutil.which(program)
    if not found:
        print(f"skipped: {program} is not installed; Debian's package {package} has it")
        sys.exit(SKIPPED)
    return found


def cross_compiled(compiler, launcher, catch2, work):
    """The program of the tests for the compiler's architecture, in `work`."""
    headers = work / "include"  # a folder of its own: /usr/include as a whole belongs to this machine's architecture
    headers.mkdir(parents=True, exist_ok=True)
    (headers / "catch2").unlink(missing_ok=True)
    (headers / "catch2").symlink_to(catch2)
    objects = []
    for source in SOURCES:
        objects.append(work / (pathlib.Path(source).stem + ".o"))
        subprocess.run([*launcher, compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow",
                        "-Wconversion", "-Wno-sign-conversion", "-Werror", "-I", TESTS.parent / "include", "-I", TESTS,
                        "-isystem", headers, "-c", TESTS / source, "-o", objects[-1]], check=True)
    program = work / "tests"
    subprocess.run([compiler, "-static", "-pthread", *objects, "-o", program], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulator", required=True, help="such as qemu-x86_64")
    parser.add_argument("--cpu", help="the emulated processor (default: the emulator's own)")
    parser.add_argument("--sets", required=True, help="the instruction sets to be found, separated by spaces")
    parser.add_argument("--program", type=pathlib.Path, help="the tests, built for the emulated architecture")
    parser.add_argument("--cross", help="or the compiler to build them with, such as aarch64-linux-gnu-g++")
    parser.add_argument("--launcher", default="", help="what starts the compiler, such as ccache")
    parser.add_argument("--catch2", type=pathlib.Path, help="the folder of catch.hpp, for --cross")
    parser.add_argument("--work", type=pathlib.Path, help="where --cross builds")
    options = parser.parse_args()

    emulator = need(options.emulator, "qemu-user")
    program = options.program
    if options.cross:
        compiler = need(options.cross, "g++-" + options.cross.removesuffix("-g++"))
        program = cross_compiled(compiler, options.launcher.split(), options.catch2, options.work)
    cpu = ["-cpu", options.cpu] if options.cpu else []
    return subprocess.run([emulator, *cpu, program, "[emulated]"], check=False,
                          env={**os.environ, "SMELT_STATED_SETS": options.sets}).returncode


if __name__ == "__main__":
    sys.exit(main())
