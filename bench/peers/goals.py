"""What is measured, and how fast must it be? Every goal is a row or several, with the least that must be reached and
what is aimed at. Each figure is a ratio: a share of the peak of multiply-adds measured around the same window, or a
ratio between runs that took turns.
"""

import dataclasses
import json
import pathlib
import statistics

from programs import KEEP_MEMORY, Failed, last_object, run

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Row:
    goal: str
    what: str
    must: float
    aim: float
    # %: a share, shown times 100; <: one that is better the smaller it is; x: a ratio; n: a count, the smaller the
    # better; ?: 1 is yes and 0 no
    unit: str = "%"
    value: float | None = None
    note: str = ""
    skipped: str = ""

    def verdict(self):
        if self.value is None:
            return self.skipped if self.skipped.startswith("failed: ") else "skipped: " + self.skipped
        smaller = self.unit in ("n", "<")
        reached = (lambda limit: self.value <= limit) if smaller else (lambda limit: self.value >= limit)
        return "aim reached" if reached(self.aim) else "pass" if reached(self.must) else "MISS"

    def shown(self, number):
        if number is None:
            return "-"
        if self.unit == "?":
            return "yes" if number == 1 else "no"
        share = f"{100 * number:.1f} %"
        return {"%": share, "<": share, "x": f"{number:.2f} x", "n": f"{number:g}"}[self.unit]


class Setting:
    """Where the programs are and how they are run."""

    def __init__(self, build, portable_build, cores, quick, peers, folder):
        self.build, self.portable_build = build, portable_build
        self.cores = cores  # numbers of the cores to use
        self.quick = quick
        self.peers = peers  # name -> commands
        self.figures = {}  # everything measured, by name, for --json
        self.folder = folder  # for files that nobody needs afterwards
        self.specs = {name: HERE / f"{name}.json" for name in ("moe", "looped", "dense")}
        if quick:
            for name, path in self.specs.items():
                spec = json.loads(path.read_text(encoding="utf-8")) | {"context": 64, "layers": 4, "vocab": 512}
                spec |= {"dense_layers": 4} if name == "dense" else {}
                self.specs[name] = self.folder / path.name
                self.specs[name].write_text(json.dumps(spec), encoding="utf-8")
        self.rounds = 1 if quick else 3
        self.kept = {}

    def once(self, key, measure):
        """The result of measure(), or the one it had before; goals share runs."""
        if key not in self.kept:
            self.kept[key] = measure()
            self.figures[key] = self.kept[key]
        return self.kept[key]

    def bench(self, name, *options, portable=False):
        """The JSON of bench/<name>; a program of single-threaded products is pinned to the last core."""
        path = self.folder / f"{name}.json"
        program = (self.portable_build if portable else self.build) / "bench" / name
        core = self.cores[-1] if name == "gemm" else None
        run([program, *(["--quick"] if self.quick else []), "--json", path, *options], core=core)
        return json.loads(path.read_text(encoding="utf-8"))

    def step(self, spec, *options, threads=None):
        """The JSON of smelt bench of a spec by its name, or of a file."""
        steps = 2 if self.quick else 10
        return json.loads(run([self.build / "tools" / "smelt", "bench", self.specs.get(spec, spec), "--json", "--steps",
                               steps, "--threads", threads or len(self.cores), *options]))

    def has_peer(self, name, row):
        """Whether there is a command for a peer; the row tells where there is none."""
        if self.peers.get(name):
            return True
        row.skipped = f"no --peer-cmd {name}=COMMAND"
        return False


# ---- an expert's product ---------------------------------------------------------------------------------------------

def gemm_windows(document):
    """Shares of peak by (library, weights, tokens): a list of windows for each layer shape."""
    found = {}
    for entry in document["benchmarks"]:
        found.setdefault((entry["library"], entry["weights"], entry["tokens"]), []).append(entry["windows"])
    return found


def share(windows, library, weights, tokens):
    """Geometric mean over layer shapes of the median share."""
    return statistics.geometric_mean(statistics.median(shape) for shape in windows[library, weights, tokens])


def times_faster(windows, other, weights, tokens):
    """Geometric mean over layer shapes of the median over rounds of smelt's rate over another library's."""
    return statistics.geometric_mean(
        statistics.median(a / b for a, b in zip(ours, theirs))
        for ours, theirs in zip(windows["smelt", weights, tokens], windows[other, weights, tokens]))


def hot_products(windows, goal, what, must, aim):
    shares = {tokens: share(windows, "smelt", "hot", tokens)
              for library, weights, tokens in windows if (library, weights) == ("smelt", "hot") and tokens >= 16}
    worst = min(shares, key=shares.get)
    note = "worst at {} tokens; {}".format(
        worst, ", ".join(f"{tokens}: {100 * value:.1f}" for tokens, value in sorted(shares.items())))
    return Row(goal, what, must, aim, value=shares[worst], note=note)


def g1(setting):
    windows = gemm_windows(setting.once("gemm", lambda: setting.bench("gemm")))
    yield hot_products(windows, "G1", "expert GEMM, fp32, hot, 16 to 256 tokens, of peak", 0.88, 0.93)


def g2(setting):
    windows = gemm_windows(setting.once("gemm", lambda: setting.bench("gemm")))
    for tokens, must, aim in ((32, 0.65, 0.72), (64, 0.75, 0.82), (128, 0.82, 0.88)):
        row = Row("G2", f"expert GEMM, fp32, cold, {tokens} tokens, of peak", must, aim)
        if ("smelt", "cold", tokens) in windows:
            row.value = share(windows, "smelt", "cold", tokens)
        else:
            row.skipped = "not in a quick run"
        yield row


def g3(setting):
    document = setting.once("gemm", lambda: setting.bench("gemm"))
    windows = gemm_windows(document)
    for library, title, must, aim in (("onednn", "oneDNN, packed beforehand", 1.0, 1.05), ("eigen", "Eigen", 1.5, 1.7),
                                      ("openblas", "OpenBLAS", 1.2, 1.35)):
        for weights in ("hot", "cold"):
            row = Row("G3", f"expert GEMM, {weights}, 64 tokens, against {title}", must, aim, "x")
            if library in document["libraries"]:
                row.value = times_faster(windows, library, weights, 64)
                row.note = document["libraries"][library].split(",")[0]
            else:
                row.skipped = "not found when the benchmark was built"
            yield row


# ---- a layer of experts ----------------------------------------------------------------------------------------------

def g4(setting):
    layers = setting.once("moe_layer", lambda: setting.bench("moe_layer"))["benchmarks"]
    for entry in layers:
        if entry["type"] == "fp32":
            cores = "1 core" if entry["cores"] == 1 else f"{entry['cores']} cores"
            yield Row("G4", f"MoE layer forward + backward, {entry['tokens']} tokens, {cores}, of peak", 0.72, 0.82,
                      value=entry["of_peak"])


# ---- a training step -------------------------------------------------------------------------------------------------

def g5(setting):
    step = setting.once("step", lambda: setting.step("moe"))
    yield Row("G5", f"training step, fp32, {step['tokens_per_step']:.0f} tokens, {step['threads']} threads, of peak",
              0.55, 0.70, value=step["of_peak"], note=f"{step['tokens_per_second']:,.0f} tokens/s")


def taking_turns(setting, ours, commands, keys, extra=None):
    """What commands print, each run after a run of ours: lists of {"ours": ..., "theirs": ...} for every command. The
    objects have the `keys`."""
    turns = {command: [] for command in commands}
    for _ in range(setting.rounds):
        for command in commands:
            mine = ours()
            said = last_object(run(command, extra))
            for key in keys:
                if key not in said:
                    raise Failed(f"{command} printed no {key}")
            turns[command].append({"ours": {key: mine[key] for key in keys}, "theirs": said})
    return turns


def compare(row, turns, key, shown):
    """Fills a row with the median over the turns of ours to the best of theirs; the note has shown(theirs)."""
    ratios = {command: statistics.median(turn["ours"][key] / turn["theirs"][key] for turn in found)
              for command, found in turns.items()}
    row.value = min(ratios.values())
    row.note = "; ".join(
        " ".join(filter(None, [found[0]["theirs"].get("version", ""),
                               shown(statistics.median(turn["theirs"][key] for turn in found)),
                               f"({ratios[command]:.2f} x)" if len(turns) > 1 else ""]))
        for command, found in turns.items())


def g6(setting):
    row = Row("G6", "training step against tuned PyTorch, sorted experts", 2.5, 4.0, "x")
    yield row
    if not setting.has_peer("torch", row):
        return
    commands = [f"{python} {HERE / 'torch_moe.py'} {setting.specs['moe']} --threads {len(setting.cores)}"
                f" --steps {1 if setting.quick else 3}" for python in setting.peers["torch"]]
    turns = taking_turns(setting, lambda: setting.step("moe"), commands, ["tokens_per_second"], KEEP_MEMORY)
    setting.figures["torch"] = turns
    compare(row, turns, "tokens_per_second", "{:,.0f} tokens/s".format)


def g7(setting):
    row = Row("G7", "training step, bf16 against our fp32", 1.4, 1.7, "x")
    yield row
    try:
        both = setting.once("bf16", lambda: setting.step("moe", "--dtype", "bf16", "--against-dtype", "fp32"))
    except Failed as problem:
        if "bf16" not in str(problem):
            raise
        row.skipped = "no bf16 instructions here"
        return
    row.value = both["tokens_per_second_ratio"]
    row.note = f"{both['tokens_per_second']:,.0f} tokens/s"


def g8(setting):
    row = Row("G8", "dense model, training step against llm.c, FLOP/s", 8, 15, "x")
    yield row
    if not setting.has_peer("llm.c", row):
        return
    turns = taking_turns(setting, lambda: setting.step("dense"), setting.peers["llm.c"], ["flop_per_second"],
                         {"OMP_NUM_THREADS": str(len(setting.cores))})
    setting.figures["llm.c"] = turns
    compare(row, turns, "flop_per_second", lambda rate: f"{rate * 1e-9:.1f} GFLOP/s")


def g9(setting):
    rows = {"prefill_tokens_per_second": Row("G9", "prefill of 512 tokens against llama.cpp, F32", 2.5, 5, "x"),
            "decode_tokens_per_second": Row("G9", "decode of 64 tokens against llama.cpp, F32", 1.3, 1.6, "x")}
    yield from rows.values()
    if not all([setting.has_peer("llama.cpp", row) for row in rows.values()]):
        return
    turns = taking_turns(setting, lambda: setting.bench("decode", setting.specs["moe"]), setting.peers["llama.cpp"],
                         list(rows))
    setting.figures["llama.cpp"] = turns
    for key, row in rows.items():
        compare(row, turns, key, "{:,.0f} tokens/s".format)


def g10(setting):
    for key, what, must, aim, batch in (("cores", "training step", 1.85, 1.95, ()),
                                        ("cores_256", "training step of 256 tokens", 1.7, 1.85,
                                         ("--sequences", "1", "--length", "64" if setting.quick else "256"))):
        row = Row("G10", f"{what}, two cores over one", must, aim, "x")
        yield row
        if len(setting.cores) < 2:
            row.skipped = "one core"
            continue
        both = setting.once(key, lambda: setting.step("moe", "--against-threads", "1", *batch, threads=2))
        row.value = both["tokens_per_second_ratio"]


def g11(setting):
    step = setting.once("step", lambda: setting.step("moe"))
    yield Row("G11", "allocations in a step", 0, 0, "n", value=step["allocations_per_step"])
    yield Row("G11", "page faults in a step", 100, 0, "n", value=step["faults_per_step"])


def g12(setting):
    both = setting.once("looped", lambda: setting.step("looped", "--against", str(setting.specs["moe"])))
    yield Row("G12", "looped model, FLOP/s against the unlooped one", 0.95, 0.98, "x",
              value=both["flop_per_second_ratio"])


def g13(setting):
    share_row = Row("G13", "expert GEMM, AVX2, hot, 16 to 256 tokens, of its own peak", 0.8, 0.8)
    try:
        document = setting.once("gemm_avx2", lambda: setting.bench("gemm", "--instruction-set", "avx2", portable=True))
        share_row = hot_products(gemm_windows(document), share_row.goal, share_row.what, share_row.must, share_row.aim)
    except Failed as problem:
        if "instruction set 'avx2'" not in str(problem):
            raise
        share_row.skipped = "this machine or this build has no AVX2"
    yield share_row
    # The benchmark checks every product before it is timed, and fails on a wrong one.
    row = Row("G13", "baseline products agree with sums in double", 1, 1, "?", value=1)
    try:
        setting.bench("gemm", "--quick", "--instruction-set", "baseline", portable=True)
    except Failed as problem:
        if "instruction set 'baseline'" in str(problem):
            row.value, row.skipped = None, "this build has no baseline"
        else:
            row.value, row.note = 0, str(problem)
    yield row


# What the first of two visits can be, beside a full one.
CHEAPER_VISITS = {"two tokens a latent": {"compression": 2}, "half of the active experts": {"active": 4},
                  "half of the hidden units": {"expert_hidden": [1, 2]}, "half of the stream": {"stream": [1, 2]}}


def visits(setting, dtype):
    """The time and FLOPs of a step: without a loop, with two full visits, and with one full and one of the cheaper. The
    time is in FLOPs at the peak that each run calibrated, since a slow moment slows both; medians over rounds in which
    they took turns, more of them than elsewhere for what is a difference of steps."""
    looped = json.loads(setting.specs["looped"].read_text(encoding="utf-8"))
    specs = {"one": str(setting.specs["moe"])}
    for name, plan in ({"full": {}} | CHEAPER_VISITS).items():
        path = setting.folder / f"{name}.json"
        path.write_text(json.dumps(looped | {"loop": looped["loop"] | {"visits": [plan, {}]}}), encoding="utf-8")
        specs[name] = str(path)
    found = {name: [] for name in specs}
    for _ in range(2 * setting.rounds - 1):
        for name, spec in specs.items():
            found[name].append(setting.step(spec, "--dtype", dtype))
    return {name: {"time": statistics.median(run["flop_per_step"] / run["of_peak"] for run in runs),
                   "flop": runs[0]["flop_per_step"]} for name, runs in found.items()}


def g14(setting):
    for dtype in ("fp32", "bf16"):
        try:
            runs = setting.once(f"visits, {dtype}", lambda: visits(setting, dtype))
        except Failed as problem:
            if dtype == "fp32" or "bf16" not in str(problem):
                raise
            yield Row("G14", "visits in bf16", None, None, skipped="this machine has no bf16")
            return
        one, full = runs["one"], runs["full"]
        for name in CHEAPER_VISITS:
            of_full = {what: (runs[name][what] - one[what]) / (full[what] - one[what]) for what in ("time", "flop")}
            # What is cut saves time as it saves FLOPs, to 10 % of a full visit.
            must, aim = (0.53, 0.5) if name == "two tokens a latent" else (of_full["flop"] + 0.1, of_full["flop"])
            yield Row("G14", f"a visit with {name}, {dtype}, of a full one's time", must, aim, "<",
                      value=of_full["time"], note=f"{100 * of_full['flop']:.1f} % of its FLOPs")


GOALS = {"G1": g1, "G2": g2, "G3": g3, "G4": g4, "G5": g5, "G6": g6, "G7": g7, "G8": g8, "G9": g9, "G10": g10,
         "G11": g11, "G12": g12, "G13": g13, "G14": g14}
