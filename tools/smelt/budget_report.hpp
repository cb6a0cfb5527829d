// How are the budgets of an architecture written out? The same figures as JSON and as tables, with their conventions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/budget/compare.hpp>
#include <smelt/budget/conventions.hpp>
#include <smelt/budget/flops.hpp>
#include <smelt/budget/kv_cache.hpp>
#include <smelt/budget/memory.hpp>
#include <smelt/budget/parameters.hpp>
#include <smelt/budget/sparsity.hpp>
#include <smelt/budget/table.hpp>
#include <smelt/budget/tolerance.hpp>
#include <string>
#include <string_view>

#include "spec_argument.hpp"
#include "table.hpp"

namespace smelt::tool {

/// The most bytes that an element of the KV cache can have.
inline constexpr std::int64_t max_kv_bytes = 64;

/// How budgets are counted, as the command line gives it.
struct counting {
  convention flops = conventions::smelt;
  bool convention_given = false;  ///< otherwise sparsity is counted as the papers do
  std::int64_t context = 0;       ///< tokens of a sequence; 0 is the spec's own context
  int kv_bytes = 2;               ///< of an element of the KV cache
};

/// Every budget of one architecture.
struct budgets {
  named_spec of;
  std::int64_t context = 0;
  convention counted_by;
  parameter_count params;
  flop_count flops;
  kv_cache_size kv_cache;
  training_memory training;
  inference_memory inference;
  std::string control;  ///< what the sparsity is measured against
  convention sparsity_convention;
  sparsity_figures sparsity;
};

/// The convention called `name`. Throws errc::invalid_argument with the nearest names.
[[nodiscard]] convention convention_of(const std::string& name);

/// The budgets of `of`, each checked to fit in 64 bits. Without a `control` the preset's own is used, or the spec with
/// every expert active and no loop. Throws errc::overflow naming the figure, errc::invalid_argument for a context that
/// no sequence can have.
[[nodiscard]] budgets budgets_of(const named_spec& of, const counting& by,
                                 const std::optional<named_spec>& control = std::nullopt);

/// The comparison of two architectures on sequences of the same length, within the tolerances of a `--tolerance`.
/// Without one they are the usual ones, or, where those do not hold, what the partners of a preset are solved with.
[[nodiscard]] budget_table match_of(const budgets& actual, const named_spec& expected, const std::string& tolerance,
                                    const counting& by);

[[nodiscard]] nlohmann::ordered_json to_json(const budgets& b);
[[nodiscard]] nlohmann::ordered_json to_json(const budget_table& t);

/// Every budget with its unit; one column an architecture. Precondition: counted alike.
[[nodiscard]] table budgets_table(const std::vector<budgets>& all);

/// The rows of a comparison.
[[nodiscard]] table match_table(const budget_table& t, const std::string& actual, const std::string& expected);

}  // namespace smelt::tool
