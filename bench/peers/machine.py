"""What machine were the figures measured on?"""

import datetime
import os
import pathlib
import re
import subprocess


def output_of(*command):
    """What a command prints, or nothing where it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def cpu_model():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    found = re.search(r"^(?:model name|Model|CPU part)\s*:\s*(.+)$", text, re.MULTILINE)
    family = re.search(r"^cpu family\s*:\s*(\d+)$", text, re.MULTILINE)
    return (found.group(1) if found else "unknown") + (f" (family {family.group(1)})" if family else "")


def is_virtual():
    try:
        return " hypervisor " in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def caches():
    """The caches of the first core, as the system tells; a virtual machine's may be wrong."""
    found = []
    for folder in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text(encoding="utf-8").strip()
                                 for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found) or "unknown"


def memory():
    try:
        text = pathlib.Path("/proc/meminfo").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    kibibytes = int(re.search(r"MemTotal:\s*(\d+)", text).group(1))
    return f"{kibibytes / 2**20:.1f} GiB"


def huge_pages():
    try:
        text = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    found = re.search(r"\[(\w+)\]", text)
    return found.group(1) if found else "unknown"


def build_of(build):
    """Compiler and flags from a build folder's cache."""
    text = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", text, re.MULTILINE))
    version = output_of(cache["CMAKE_CXX_COMPILER"], "--version").splitlines()
    return {"compiler": version[0] if version else cache["CMAKE_CXX_COMPILER"],
            "flags": " ".join((cache.get("CMAKE_CXX_FLAGS", "") + " "
                               + cache.get("CMAKE_CXX_FLAGS_" + cache["CMAKE_BUILD_TYPE"].upper(), "")).split())}


def describe(root, build, cores, load):
    """The machine, the build and the day, by name."""
    commit = output_of("git", "-C", root, "describe", "--always", "--dirty", "--exclude", "*")
    return {
        "processor": cpu_model(),
        "cores used": f"{cores} of {os.cpu_count()}",
        "caches": caches(),
        "memory": memory() + f", transparent huge pages: {huge_pages()}",
        "system": " ".join((os.uname().sysname, os.uname().release, os.uname().machine))
                  + (", a virtual machine" if is_virtual() else ""),
        **build_of(build),
        "commit": commit or "unknown",
        "date": datetime.date.today().isoformat(),
        "load before": f"{load:.2f}",
    }
