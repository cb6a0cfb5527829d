// Which specs can be executed? Budgets cover more fields than the kernels run; the difference is named, never ignored.
#pragma once

#include <cstdint>
#include <limits>
#include <smelt/budget/checked.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/core/error.hpp>
#include <smelt/spec/spec.hpp>
#include <smelt/spec/validate.hpp>
#include <string>

namespace smelt {

/// Returns `s` when the model can run it. Throws errc::invalid_spec for a spec that cannot exist and errc::unsupported,
/// with every field that stands in the way, for one that only the budgets cover. Throws errc::overflow for one with
/// more heads or weights than the model can address.
inline const spec& require_executable(const spec& s) {
  validate(s);
  std::string fields;
  const auto refuse = [&](bool present, const char* field) {
    if (present) fields += (fields.empty() ? "" : ", ") + std::string(field);
  };
  refuse(has_latent_attention(s), "attention.latent");
  refuse(s.attention.qkv_bias, "attention.qkv_bias");
  refuse(s.attention.o_bias, "attention.o_bias");
  refuse(s.attention.sinks, "attention.sinks");
  refuse(s.positions != position_kind::rotary, "positions (needs rotary)");
  refuse(s.ffn != ffn_kind::swiglu, "ffn (needs swiglu)");
  refuse(s.dense_bias && s.dense_layers > 0, "dense_bias");
  refuse(s.experts.bias, "experts.bias");
  refuse(s.experts.router_bias, "experts.router_bias");
  refuse(s.experts.shared_gate, "experts.shared_gate");
  refuse(s.norms_per_layer != 2, "norms_per_layer (needs 2)");
  refuse(s.norm_bias, "norm_bias");
  refuse(s.head_bias, "head_bias");
  refuse(s.exit_gate, "exit_gate");
  if (!fields.empty())
    throw error(errc::unsupported, "the model cannot execute these fields of the spec, only count them: " + fields);
  const std::int64_t query = std::int64_t{s.attention.heads} * s.attention.head_dim;
  if (query > (std::numeric_limits<int>::max)())
    throw error(errc::overflow, "attention.heads x attention.head_dim must fit in 32 bits, found " +
                                    std::to_string(s.attention.heads) + " x " + std::to_string(s.attention.head_dim));
  // Far above any memory and far enough below 64 bits that no size or offset of the layout can wrap around.
  constexpr std::int64_t most = std::int64_t{1} << 56;
  if (const std::int64_t total = parameters(s).total; total > most)
    throw error(errc::overflow, "the model must have at most 2^56 parameters, found " +
                                    (fits(total) ? std::to_string(total) : "more than 64 bits can count"));
  return s;
}

}  // namespace smelt
