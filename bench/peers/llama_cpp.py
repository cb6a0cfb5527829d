#!/usr/bin/env python3
"""How fast does llama.cpp read a prompt and write tokens? Runs its llama-bench and prints one JSON object.

    bench/peers/llama_cpp.py LLAMA_BENCH MODEL.gguf [--threads N] [--prompt 512] [--generate 64]

bench/peers/make_gguf.py writes the model of a spec file.
"""

import argparse
import json
import os
import subprocess


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_bench")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all it may use")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=64)
    arguments = parser.parse_args()
    text = subprocess.run([arguments.llama_bench, "-m", arguments.model, "-t", str(arguments.threads), "-p",
                           str(arguments.prompt), "-n", str(arguments.generate), "-r", "5", "-o", "json"],
                          check=True, capture_output=True, text=True).stdout
    figures = {}
    for test in json.loads(text):
        rates = sorted(test["samples_ts"])
        key = "prefill_tokens_per_second" if test["n_prompt"] else "decode_tokens_per_second"
        figures[key] = rates[len(rates) // 2]
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
