#!/usr/bin/env python3
"""Can a project use smelt the way its users do? Each mode builds tests/consume/project, or examples/engine, and runs it.

    install                   install the build into WORK/prefix, then move that prefix: nothing may depend on its place
    find_package [OPTION...]  from the installed prefix
    core                      from the prefix, smelt::core alone, with every other library hidden
    add_subdirectory          from the source tree
    fetch_content             from the source tree, through FetchContent
    plain COMPILER            nothing but -I
    engine                    examples/engine from the installed prefix, with its own tests
"""

import argparse
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
CORE_ROOMS = ("core", "spec", "budget")
APART = ("kernels/cuda/", "dist/", "cuda.hpp")
LIBRARIES = ("Eigen3", "TBB", "nlohmann_json", "CLI11", "Catch2", "benchmark")


def run(*command):
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True)


def write_units(include, folder):
    """every_core.hpp and every_smelt.hpp: all headers under include that the component holds."""
    folder.mkdir(parents=True, exist_ok=True)
    base = include / "smelt"
    names = sorted(path.relative_to(base).as_posix() for path in base.rglob("*.hpp"))
    names = [name for name in names if not name.startswith(APART)]
    if not names:
        raise SystemExit(f"no headers under {base}")
    chosen = {"core": [name for name in names if name.split("/")[0] in CORE_ROOMS], "smelt": names}
    for component, headers in chosen.items():
        text = "".join(f"#include <smelt/{name}>\n" for name in headers)
        (folder / f"every_{component}.hpp").write_text("#pragma once\n" + text, encoding="utf-8")


def build(args, name, source, *options):
    """Configures and builds source afresh in WORK/name; returns that folder."""
    folder = args.work / name
    shutil.rmtree(folder, ignore_errors=True)
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={args.launcher}"] if args.launcher else []
    run("cmake", "-G", "Ninja", "-S", source, "-B", folder, f"-DCMAKE_CXX_COMPILER={args.compiler}",
        f"-DCMAKE_CXX_FLAGS={args.flags}", *launcher, *options)
    run("cmake", "--build", folder)
    return folder


def consume(args, name, *options):
    units = args.work / f"{name}_units"
    from_prefix = "-DCONSUME=find_package" in options
    write_units((args.work / "moved" if from_prefix else SOURCE) / "include", units)
    folder = build(args, name, HERE / "project", f"-DUNITS={units}", *options)
    run(folder / "consumer")


def install(args):
    prefix, moved = args.work / "prefix", args.work / "moved"
    for folder in (prefix, moved):
        shutil.rmtree(folder, ignore_errors=True)
    run("cmake", "--install", args.build, "--prefix", prefix)
    prefix.rename(moved)
    for path in (moved / "share").rglob("*.cmake"):
        text = path.read_text(encoding="utf-8")
        for place in (SOURCE, args.build, prefix):
            if str(place) in text:
                raise SystemExit(f"{path} names {place}: the package cannot be moved")


def plain(args):
    """Nothing but -I: the compiler, the two units, and the system's include folders."""
    compiler = args.rest[0]
    folder = args.work / f"plain_{pathlib.Path(compiler).name}"
    shutil.rmtree(folder, ignore_errors=True)
    write_units(SOURCE / "include", folder)
    project = HERE / "project"
    systems = [part for place in args.system for part in ("-isystem", place)]
    run(compiler, "-std=c++20", "-I", SOURCE / "include", "-I", folder, *systems, '-DEVERY_HEADER="every_smelt.hpp"',
        project / "one.cpp", project / "two.cpp", "-pthread", "-o", folder / "consumer")
    run(folder / "consumer")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="the build to install")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="a folder to work in")
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--flags", default="-O0")
    parser.add_argument("--launcher", default="")
    parser.add_argument("--system", action="append", default=[], help="a folder for -isystem (plain)")
    parser.add_argument("mode")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    prefix = f"-DCMAKE_PREFIX_PATH={args.work / 'moved'}"

    if args.mode == "install":
        install(args)
    elif args.mode == "find_package":
        name = "find_package" + "".join(args.rest).replace("=", "_").replace("-D", "_")
        consume(args, name, "-DCONSUME=find_package", prefix, *args.rest)
    elif args.mode == "core":
        hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in LIBRARIES]
        consume(args, "core", "-DCONSUME=find_package", "-DCOMPONENT=core", prefix, *hidden)
    elif args.mode in ("add_subdirectory", "fetch_content"):
        component = "core" if args.mode == "fetch_content" else "smelt"
        consume(args, args.mode, f"-DCONSUME={args.mode}", f"-DSMELT_SOURCE={SOURCE}", f"-DCOMPONENT={component}")
    elif args.mode == "plain":
        plain(args)
    elif args.mode == "engine":
        folder = build(args, "engine", SOURCE / "examples" / "engine", prefix)
        run("ctest", "--test-dir", folder, "--output-on-failure", "--no-tests=error")
    else:
        raise SystemExit(f"'{args.mode}' is not a mode")
    return 0


if __name__ == "__main__":
    sys.exit(main())
