#!/usr/bin/env python3
"""How much faster is the fit than the way such laws are fitted with SciPy?

    law_scipy.py --program BUILD/bench/law --data FOLDER [--only numeric|analytic|bootstrap] [--part 0.1] [--scaled]

Runs both on the same rows and the same cores, one after the other, and prints the ratios. FOLDER holds
epoch_chinchilla/epoch_nd_loss.csv (columns N, D, loss, keep240). The published protocol: Huber's loss with delta 1e-3
summed over log residuals, L-BFGS-B, 4,500 starts, with numerical or analytic gradients; and 4,000 resamples drawn with
seed 42, each refitted from the fit to all rows. --part takes that part of starts and resamples and scales the seconds up.
"""

import argparse
import csv
import itertools
import json
import os
import pathlib
import subprocess
import tempfile
import time

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[threads] = "1"

import numpy as np  # noqa: E402
from scipy.optimize import minimize  # noqa: E402

DELTA = 1e-3
# The sum as published: below 1e-2 SciPy's relative tolerance acts as an absolute one, and most starts stop early.
# 1 / DELTA^2 lets L-BFGS-B come as close as its tolerances promise, and takes longer.
SCALE = 1.0


def value_and_gradient(p, log_n, log_d, log_loss):
    """The objective, times a factor, and its gradient."""
    a, b, e, alpha, beta = p
    terms = np.stack([a - alpha * log_n, b - beta * log_d, np.full_like(log_n, e)])
    top = terms.max(0)
    weights = np.exp(terms - top)
    total = weights.sum(0)
    weights /= total
    residual = top + np.log(total) - log_loss
    size = np.abs(residual)
    value = np.where(size <= DELTA, 0.5 * residual * residual, DELTA * (size - 0.5 * DELTA)).sum()
    pulled = np.clip(residual, -DELTA, DELTA) * weights
    gradient = np.array([pulled[0].sum(), pulled[1].sum(), pulled[2].sum(), -(pulled[0] @ log_n),
                         -(pulled[1] @ log_d)])
    return value * SCALE, gradient * SCALE


def published_starts():
    grid = [np.arange(0, 2.5, 0.5), np.arange(0, 2.5, 0.5), np.arange(-1, 1.5, 0.5), np.arange(0, 30, 5.0),
            np.arange(0, 30, 5.0)]
    return [np.array([a, b, e, alpha, beta]) for alpha, beta, e, a, b in itertools.product(*grid)]


def fit_all(starts, columns, analytic):
    best = None
    begun = time.perf_counter()
    with np.errstate(all="ignore"):
        for start in starts:
            if analytic:
                r = minimize(value_and_gradient, start, args=columns, jac=True, method="L-BFGS-B")
            else:
                r = minimize(lambda p: value_and_gradient(p, *columns)[0], start, method="L-BFGS-B")
            if best is None or r.fun < best.fun:
                best = r
    return best, time.perf_counter() - begun


def bootstrap(best, columns, draws, analytic):
    random = np.random.RandomState(42)
    n = len(columns[0])
    begun = time.perf_counter()
    for _ in range(draws):
        chosen = random.choice(n, n)
        sample = tuple(c[chosen] for c in columns)
        if analytic:
            minimize(value_and_gradient, best, args=sample, jac=True, method="L-BFGS-B")
        else:
            minimize(lambda p: value_and_gradient(p, *sample)[0], best, method="L-BFGS-B")
    return time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--only", choices=["numeric", "analytic", "bootstrap"])
    parser.add_argument("--part", type=float, default=1.0)
    parser.add_argument("--scaled", action="store_true", help="minimise the sum over delta^2, as tolerances need")
    options = parser.parse_args()
    if options.scaled:
        global SCALE
        SCALE = 1 / DELTA**2

    with open(pathlib.Path(options.data) / "epoch_chinchilla" / "epoch_nd_loss.csv", encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["keep240"] == "1"]
    columns = tuple(np.log(np.array([float(r[name]) for r in rows])) for name in ("N", "D", "loss"))
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "rows.csv"
        table.write_text("N,D,loss\n" + "".join(f"{r['N']},{r['D']},{r['loss']}\n" for r in rows), encoding="utf-8")
        result = pathlib.Path(folder) / "out.json"
        subprocess.run([options.program, "--rows", table, "--json", result], check=True, stdout=subprocess.DEVNULL)
        ours = json.loads(result.read_text(encoding="utf-8"))

    starts = published_starts()
    starts = starts[::max(1, round(1 / options.part))]
    scale = 4500 / len(starts)
    print(f"smelt: 4500 starts {ours['fit_s']:.3f} s (objective {ours['objective']:.13g}, {ours['agreeing']} agree), "
          f"4000 resamples {ours['bootstrap_s']:.3f} s")
    for name, analytic in (("numeric", False), ("analytic", True)):
        if options.only in (None, name):
            best, seconds = fit_all(starts, columns, analytic)
            seconds *= scale
            print(f"SciPy, {name} gradients: 4500 starts {seconds:.1f} s, objective {best.fun / SCALE:.13g}: "
                  f"{seconds / ours['fit_s']:.0f} times as long")
    if options.only in (None, "bootstrap"):
        at = np.array([np.log(ours["coefficients"][k]) if k in "ABE" else ours["coefficients"][k]
                       for k in ("A", "B", "E", "alpha", "beta")])
        for name, analytic in (("numeric", False), ("analytic", True)):
            draws = round(4000 * options.part)
            seconds = bootstrap(at, columns, draws, analytic) * 4000 / draws
            print(f"SciPy, {name} gradients: 4000 resamples {seconds:.1f} s: "
                  f"{seconds / ours['bootstrap_s']:.0f} times as long")


if __name__ == "__main__":
    main()
