// How does a spec that was read at run time fail? With the words the compiler would have used.
#pragma once

#include <smelt/core/error.hpp>
#include <smelt/spec/rules.hpp>
#include <string>

namespace smelt {

/// The words of a violation: the rule's text with the value found and the limit. Empty when no rule is broken.
[[nodiscard]] inline std::string describe(const violation& v) {
  const char* text = "";
  switch (v.broken) {
    case rule::none:
      return {};
    case rule::vocab:
      text = SMELT_S001;
      break;
    case rule::padded_vocab:
      text = SMELT_S002;
      break;
    case rule::context:
      text = SMELT_S003;
      break;
    case rule::width:
      text = SMELT_S004;
      break;
    case rule::layers:
      text = SMELT_S005;
      break;
    case rule::dense_layers:
      text = SMELT_S006;
      break;
    case rule::dense_hidden:
      text = SMELT_S007;
      break;
    case rule::attention_heads:
      text = SMELT_S008;
      break;
    case rule::attention_kv_heads:
      text = SMELT_S009;
      break;
    case rule::attention_head_dim:
      text = SMELT_S010;
      break;
    case rule::rotary_head_dim:
      text = SMELT_S011;
      break;
    case rule::attention_window:
      text = SMELT_S012;
      break;
    case rule::rotary_base:
      text = SMELT_S013;
      break;
    case rule::latent_attention:
      text = SMELT_S014;
      break;
    case rule::experts_stored:
      text = SMELT_S015;
      break;
    case rule::experts_active:
      text = SMELT_S016;
      break;
    case rule::experts_hidden:
      text = SMELT_S017;
      break;
    case rule::shared_hidden:
      text = SMELT_S018;
      break;
    case rule::shared_gate:
      text = SMELT_S019;
      break;
    case rule::norms_per_layer:
      text = SMELT_S020;
      break;
    case rule::norm_eps:
      text = SMELT_S021;
      break;
    case rule::loop_count:
      text = SMELT_S022;
      break;
    case rule::loop_first:
      text = SMELT_S023;
      break;
    case rule::loop_span:
      text = SMELT_S024;
      break;
    case rule::loop_visits:
      text = SMELT_S025;
      break;
    case rule::loop_visits_limit:
      text = SMELT_S026;
      break;
    case rule::loop_without_span:
      text = SMELT_S027;
      break;
    case rule::visit_compression:
      text = SMELT_S028;
      break;
    case rule::visit_residual:
      text = SMELT_S029;
      break;
    case rule::exit_gate:
      text = SMELT_S030;
      break;
    case rule::loop_runs:
      text = SMELT_S031;
      break;
    case rule::visit_active:
      text = SMELT_S032;
      break;
    case rule::visit_expert_hidden:
      text = SMELT_S033;
      break;
    case rule::visit_stream:
      text = SMELT_S034;
      break;
    case rule::visit_learned:
      text = SMELT_S035;
      break;
  }
  return std::string(text) + " (found " + std::to_string(v.found) + ", limit " + std::to_string(v.limit) + ")";
}

/// Returns `s` when it can exist. Throws errc::invalid_spec with the broken rule's words otherwise.
inline const spec& validate(const spec& s) {
  if (const violation v = first_violation(s); v.broken != rule::none) throw error(errc::invalid_spec, describe(v));
  return s;
}

}  // namespace smelt
