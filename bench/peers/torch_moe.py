#!/usr/bin/env python3
"""How fast does PyTorch train the same mixture of experts?

Builds the model of a spec file (grouped-query attention with rotary embedding, top-k routed SwiGLU experts, AdamW with
gradient clipping, balance loss) the way a careful user of eager PyTorch would: tokens sorted by expert, so that every
expert is three matrix products on contiguous rows; the fused attention kernel and the fused optimiser where the
installed version has them.

    bench/peers/torch_moe.py bench/peers/moe.json --batch 8 --threads 2

Prints a JSON object. PyTorch returns freed memory to the system and pays for fresh pages in every step, unless the
environment says otherwise: KEEP_MEMORY in programs.py holds the variables that make it up to 30 times faster, and
scripts/bench-peers sets them.
"""

import argparse
import json
import math
import resource
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps
        self.fused = hasattr(F, "rms_norm")

    def forward(self, x):
        if self.fused:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotary_tables(length, head_dim, base):
    frequencies = 1.0 / (base ** (torch.arange(0, head_dim, 2).float() / head_dim))
    angles = torch.outer(torch.arange(length).float(), frequencies)
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, head_dim):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.q = nn.Linear(width, heads * head_dim, bias=False)
        self.k = nn.Linear(width, kv_heads * head_dim, bias=False)
        self.v = nn.Linear(width, kv_heads * head_dim, bias=False)
        self.o = nn.Linear(heads * head_dim, width, bias=False)
        self.fused = hasattr(F, "scaled_dot_product_attention")

    def forward(self, x, cos, sin, future):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = self.k(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)).masked_fill(future, float("-inf"))
            y = F.softmax(scores, -1) @ v
        return self.o(y.transpose(1, 2).reshape(batch, length, self.heads * self.head_dim))


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    def __init__(self, width, hidden, stored, active):
        super().__init__()
        self.stored, self.active = stored, active
        self.router = nn.Linear(width, stored, bias=False)
        self.experts = nn.ModuleList(Expert(width, hidden) for _ in range(stored))

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        scores = F.softmax(self.router(x), -1)
        weights, chosen = torch.topk(scores, self.active, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        order = torch.argsort(chosen.reshape(-1), stable=True)
        counts = torch.bincount(chosen.reshape(-1), minlength=self.stored)
        token = torch.div(order, self.active, rounding_mode="floor")
        rows = x.index_select(0, token).split(counts.tolist())
        parts = [self.experts[e](part) for e, part in enumerate(rows) if part.shape[0]]
        y = torch.cat(parts) * weights.reshape(-1)[order].unsqueeze(-1)
        out = torch.zeros_like(x).index_add_(0, token, y)
        share = counts.to(x.dtype) / chosen.numel()
        self.balance_loss = self.stored * (share * scores.mean(0)).sum()
        return out.view(shape)


class Layer(nn.Module):
    def __init__(self, spec):
        super().__init__()
        width, attention, experts = spec["width"], spec["attention"], spec["experts"]
        eps = spec.get("norm_eps", 1e-5)
        self.attention_norm, self.experts_norm = RmsNorm(width, eps), RmsNorm(width, eps)
        self.attention = Attention(width, attention["heads"], attention["kv_heads"], attention["head_dim"])
        self.experts = Experts(width, experts["hidden"], experts["stored"], experts["active"])

    def forward(self, x, cos, sin, future):
        x = x + self.attention(self.attention_norm(x), cos, sin, future)
        return x + self.experts(self.experts_norm(x))


class LanguageModel(nn.Module):
    def __init__(self, spec):
        super().__init__()
        width, vocab, length = spec["width"], spec["vocab"], spec["context"]
        self.embedding = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Layer(spec) for _ in range(spec["layers"]))
        self.norm = RmsNorm(width, spec.get("norm_eps", 1e-5))
        self.head = nn.Linear(width, vocab, bias=False)
        cos, sin = rotary_tables(length, spec["attention"]["head_dim"], spec["attention"].get("rotary_base", 10000))
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self.register_buffer("future", torch.ones(length, length, dtype=torch.bool).triu(1))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.future)
        return self.head(self.norm(x))

    def balance_loss(self):
        return sum(layer.experts.balance_loss for layer in self.layers)


def refuse_what_differs(spec):
    """The fields this file knows; anything else would be a different model."""
    known = {"vocab", "context", "width", "layers", "attention", "experts", "norm_eps"}
    known_attention = {"heads", "kv_heads", "head_dim", "rotary_base"}
    known_experts = {"stored", "active", "hidden", "renormalise"}
    unknown = set(spec) - known | set(spec["attention"]) - known_attention | set(spec["experts"]) - known_experts
    if unknown or not spec["experts"].get("renormalise"):
        raise SystemExit(f"torch_moe.py: only plain models with renormalised weights, not {sorted(unknown)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", help="the architecture, as smelt reads it")
    parser.add_argument("--batch", type=int, default=8, help="sequences of the spec's context a step (default: 8)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="timed steps, behind three that are not (default: 5)")
    arguments = parser.parse_args()
    with open(arguments.spec, encoding="utf-8") as file:
        spec = json.load(file)
    refuse_what_differs(spec)

    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    model = LanguageModel(spec)
    ids = torch.randint(0, spec["vocab"], (arguments.batch, spec["context"] + 1))
    options = {"lr": 3e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
    try:
        optimizer = torch.optim.AdamW(model.parameters(), fused=True, **options)
    except (TypeError, RuntimeError):  # before 2.4: no such argument, or not on a CPU
        optimizer = torch.optim.AdamW(model.parameters(), **options)

    def step():
        start = time.perf_counter()
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, spec["vocab"]), ids[:, 1:].reshape(-1))
        loss = loss + 0.01 * model.balance_loss()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if not math.isfinite(loss.item()):
            raise SystemExit("torch_moe.py: the loss is not finite")
        return time.perf_counter() - start

    for _ in range(3):  # until the heap has grown to what a step needs
        step()
    tokens = arguments.batch * spec["context"]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    seconds = [step() for _ in range(arguments.steps)]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    print(json.dumps({
        "version": torch.__version__,
        "threads": arguments.threads,
        "params": sum(p.numel() for p in model.parameters()),
        "tokens_per_step": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / statistics.median(seconds),
        "faults_per_step": faults / arguments.steps,
    }))


if __name__ == "__main__":
    main()
