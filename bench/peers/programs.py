"""How are the programs run whose figures are compared? One at a time, each in the environment that suits it best."""

import json
import os
import shlex
import subprocess

# PyTorch frees and takes fresh pages in every step, which costs more than its arithmetic, unless glibc keeps them.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
    "MALLOC_ARENA_MAX": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}

# They make OpenBLAS use the kernels and cache sizes of another processor.
OTHER_PROCESSOR = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


class Failed(Exception):
    """A program that gave no figures."""


def environment(extra=None):
    kept = {name: value for name, value in os.environ.items() if name not in OTHER_PROCESSOR}
    return kept | (extra or {})


def run(command, extra=None, core=None):
    """Standard output of a command; `core` pins it. Raises Failed with the last words of one that fails."""
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    pin = None if core is None else lambda: os.sched_setaffinity(0, {core})
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              env=environment(extra), preexec_fn=pin)
    except OSError as problem:
        raise Failed(f"{words[0]}: {problem.strerror}") from problem
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Failed(f"{shlex.join(words[:3])} ... exited with {done.returncode}" + (f": {said[-1]}" if said else ""))
    return done.stdout


def last_object(text):
    """The last JSON object that is a line of its own; raises Failed where there is none."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                continue
    raise Failed("it printed no JSON object on a line of its own")
