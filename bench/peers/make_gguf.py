#!/usr/bin/env python3
"""Writes the model of a spec file with random weights as GGUF, for llama.cpp to be timed on.

    bench/peers/make_gguf.py bench/peers/moe.json model.gguf        float32; --bf16 for bfloat16 matrices

Needs the packages gguf and numpy. The architecture is llama's with experts: rotary embedding, RMS norms, SwiGLU experts
whose top-k softmax weights are renormalised.
"""

import argparse
import json

import gguf
import numpy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", help="the architecture, as smelt reads it")
    parser.add_argument("output")
    parser.add_argument("--bf16", action="store_true")
    arguments = parser.parse_args()
    with open(arguments.spec, encoding="utf-8") as file:
        spec = json.load(file)
    attention, experts = spec["attention"], spec["experts"]
    width, head_dim, stored, hidden = spec["width"], attention["head_dim"], experts["stored"], experts["hidden"]

    writer = gguf.GGUFWriter(arguments.output, "llama")
    writer.add_context_length(4 * spec["context"])
    writer.add_embedding_length(width)
    writer.add_block_count(spec["layers"])
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(attention["heads"])
    writer.add_head_count_kv(attention["kv_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(spec.get("norm_eps", 1e-5))
    writer.add_expert_count(stored)
    writer.add_expert_used_count(experts["active"])
    writer.add_vocab_size(spec["vocab"])
    writer.add_tokenizer_model("none")

    random = numpy.random.default_rng(0)
    bf16 = gguf.GGMLQuantizationType.BF16

    def add(name, *shape):
        values = random.standard_normal(shape, dtype=numpy.float32) * numpy.float32(0.02)
        if arguments.bf16 and not name.startswith("token_embd") and "gate_inp" not in name:
            writer.add_tensor(name, gguf.quants.quantize(values, bf16), raw_dtype=bf16)
        else:
            writer.add_tensor(name, values)

    def add_gain(name):
        writer.add_tensor(name, numpy.ones(width, dtype=numpy.float32))

    add("token_embd.weight", spec["vocab"], width)
    add_gain("output_norm.weight")
    add("output.weight", spec["vocab"], width)
    for i in range(spec["layers"]):
        layer = f"blk.{i}."
        add_gain(layer + "attn_norm.weight")
        add(layer + "attn_q.weight", attention["heads"] * head_dim, width)
        add(layer + "attn_k.weight", attention["kv_heads"] * head_dim, width)
        add(layer + "attn_v.weight", attention["kv_heads"] * head_dim, width)
        add(layer + "attn_output.weight", width, attention["heads"] * head_dim)
        add_gain(layer + "ffn_norm.weight")
        add(layer + "ffn_gate_inp.weight", stored, width)
        add(layer + "ffn_gate_exps.weight", stored, hidden, width)
        add(layer + "ffn_up_exps.weight", stored, hidden, width)
        add(layer + "ffn_down_exps.weight", stored, width, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
