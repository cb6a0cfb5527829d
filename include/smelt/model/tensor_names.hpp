// What do others call our weights? The names and shapes of a model's file, in the ecosystem's convention.
#pragma once

#include <cstdint>
#include <smelt/model/weight_layout.hpp>
#include <string>
#include <utility>
#include <vector>

namespace smelt {

/// One tensor of a model's file: a weight, or one expert's part of it.
struct named_tensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< [size] or [out, in]
  std::int64_t offset = 0;          ///< of its first element in the weight buffer
  std::int64_t size = 0;            ///< elements
};

/// The tensors of `layout` in buffer order, named as OLMoE and Qwen2-MoE name theirs
/// (model.layers.0.mlp.experts.3.up_proj.weight); the balancing bias as DeepSeek-V3 does. What a visit has of its own
/// stands under its number: model.visits.0.writeback.weight, model.visits.0.layers.2.self_attn.q_proj.weight.
[[nodiscard]] inline std::vector<named_tensor> named_tensors(const weight_layout& layout, const spec& s) {
  std::vector<named_tensor> tensors;
  const auto add = [&](std::string name, const weight_place& p) {
    std::vector<std::int64_t> shape = p.rows == 1 ? std::vector{p.cols} : std::vector{p.rows, p.cols};
    tensors.push_back({std::move(name), std::move(shape), p.offset, p.size()});
  };
  layout.for_each([&](weight w, int layer, const weight_place& p) {
    std::string prefix = "model.layers." + std::to_string(layer) + ".";
    if (is_of_visit(w)) prefix = "model.visits." + std::to_string(layer) + ".";
    if (!is_of_visit(w) && layer >= s.layers) {
      const own_attention at = own_attention_at(s, layer);
      prefix = "model.visits." + std::to_string(at.visit) + ".layers." + std::to_string(at.layer) + ".";
    }
    const auto add_experts = [&](const char* projection) {
      const std::int64_t rows = p.rows / s.experts.stored;
      for (int e = 0; e < s.experts.stored; ++e) {
        tensors.push_back({prefix + "mlp.experts." + std::to_string(e) + "." + projection + ".weight",
                           {rows, p.cols},
                           p.offset + e * rows * p.cols,
                           rows * p.cols});
      }
    };
    switch (w) {
      case weight::embedding:
        return add("model.embed_tokens.weight", p);
      case weight::attention_norm:
        return add(prefix + "input_layernorm.weight", p);
      case weight::query:
        return add(prefix + "self_attn.q_proj.weight", p);
      case weight::key:
        return add(prefix + "self_attn.k_proj.weight", p);
      case weight::value:
        return add(prefix + "self_attn.v_proj.weight", p);
      case weight::query_norm:
        return add(prefix + "self_attn.q_norm.weight", p);
      case weight::key_norm:
        return add(prefix + "self_attn.k_norm.weight", p);
      case weight::output:
        return add(prefix + "self_attn.o_proj.weight", p);
      case weight::ffn_norm:
        return add(prefix + "post_attention_layernorm.weight", p);
      case weight::router:
        return add(prefix + "mlp.gate.weight", p);
      case weight::balance_bias:
        return add(prefix + "mlp.gate.e_score_correction_bias", p);
      case weight::expert_gate:
        return add_experts("gate_proj");
      case weight::expert_up:
        return add_experts("up_proj");
      case weight::expert_down:
        return add_experts("down_proj");
      case weight::shared_gate:
        return add(prefix + "mlp.shared_expert.gate_proj.weight", p);
      case weight::shared_up:
        return add(prefix + "mlp.shared_expert.up_proj.weight", p);
      case weight::shared_down:
        return add(prefix + "mlp.shared_expert.down_proj.weight", p);
      case weight::dense_gate:
        return add(prefix + "mlp.gate_proj.weight", p);
      case weight::dense_up:
        return add(prefix + "mlp.up_proj.weight", p);
      case weight::dense_down:
        return add(prefix + "mlp.down_proj.weight", p);
      case weight::final_norm:
        return add("model.norm.weight", p);
      case weight::head:
        return add("lm_head.weight", p);
      case weight::coefficient:
        return add(prefix + "residual_coefficient", p);
      case weight::encoder:
        return add(prefix + "encoder.weight", p);
      case weight::writeback:
        return add(prefix + "writeback.weight", p);
      case weight::stream_down:
        return add(prefix + "down_proj.weight", p);
      case weight::stream_up:
        return add(prefix + "up_proj.weight", p);
    }
  });
  return tensors;
}

}  // namespace smelt
