#include "budget_report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <smelt/budget/presets.hpp>
#include <smelt/core/error.hpp>
#include <smelt/core/nearest_name.hpp>
#include <smelt/io/spec_json.hpp>
#include <utility>
#include <vector>

#include "number.hpp"
#include "tolerance_option.hpp"

namespace smelt::tool {

namespace {

using json = nlohmann::ordered_json;

/// A named figure of a struct, so that checks, JSON and tables walk one list.
template <class Struct>
struct figure {
  const char* name;
  std::int64_t Struct::* value;
};

constexpr std::array<figure<parameter_count>, 25> parameter_figures{{
    {"total", &parameter_count::total},
    {"active", &parameter_count::active},
    {"active_without_input_table", &parameter_count::active_without_input_table},
    {"non_embedding", &parameter_count::non_embedding},
    {"stored", &parameter_count::stored},
    {"non_expert", &parameter_count::non_expert},
    {"embedding", &parameter_count::embedding},
    {"positions", &parameter_count::positions},
    {"head", &parameter_count::head},
    {"attention", &parameter_count::attention},
    {"own_attention", &parameter_count::own_attention},
    {"router", &parameter_count::router},
    {"experts", &parameter_count::experts},
    {"shared_experts", &parameter_count::shared_experts},
    {"dense_ffn", &parameter_count::dense_ffn},
    {"norms", &parameter_count::norms},
    {"exit_gate", &parameter_count::exit_gate},
    {"coefficients", &parameter_count::coefficients},
    {"encoders", &parameter_count::encoders},
    {"writebacks", &parameter_count::writebacks},
    {"projections", &parameter_count::projections},
    {"active_experts", &parameter_count::active_experts},
    {"matrices", &parameter_count::matrices},
    {"matrices_active", &parameter_count::matrices_active},
    {"matrices_loop", &parameter_count::matrices_loop},
}};

constexpr std::array<figure<flop_count>, 15> flop_figures{{
    {"forward_per_token", &flop_count::forward_per_token},
    {"train_per_token", &flop_count::train_per_token},
    {"forward_per_sequence", &flop_count::forward},
    {"train_per_sequence", &flop_count::train},
    {"attention_projections", &flop_count::attention_projections},
    {"attention_scores", &flop_count::attention_scores},
    {"router", &flop_count::router},
    {"experts", &flop_count::experts},
    {"shared_experts", &flop_count::shared_experts},
    {"dense_ffn", &flop_count::dense_ffn},
    {"head", &flop_count::head},
    {"input_table", &flop_count::input_table},
    {"exit_gate", &flop_count::exit_gate},
    {"visit_projections", &flop_count::visit_projections},
    {"vectors", &flop_count::vectors},
}};

constexpr std::array<figure<training_memory>, 5> training_figures{{
    {"weights", &training_memory::weights},
    {"gradients", &training_memory::gradients},
    {"moments", &training_memory::moments},
    {"activations", &training_memory::activations},
    {"total", &training_memory::total},
}};

constexpr std::array<figure<inference_memory>, 3> inference_figures{{
    {"weights", &inference_memory::weights},
    {"kv_cache", &inference_memory::kv_cache},
    {"total", &inference_memory::total},
}};

constexpr std::array<figure<kv_cache_size>, 2> kv_figures{{
    {"bytes_per_token", &kv_cache_size::bytes_per_token},
    {"bytes_at_context", &kv_cache_size::bytes_at_context},
}};

template <class Struct, std::size_t Size>
void require_all_fit(const char* budget, const Struct& s, const std::array<figure<Struct>, Size>& figures) {
  for (const auto& [name, value] : figures)
    static_cast<void>(require_fits(s.*value, (std::string(budget) + "." + name).c_str()));
}

template <class Struct, std::size_t Size>
void put(json& into, const Struct& s, const std::array<figure<Struct>, Size>& figures) {
  for (const auto& [name, value] : figures) into[name] = s.*value;
}

/// `s` on sequences of `tokens`.
spec at_context(spec s, std::int64_t tokens) {
  if (tokens < 1 || tokens > (std::numeric_limits<int>::max)())
    throw error(errc::invalid_argument, "--context must be from 1 to 2147483647 tokens; found " + grouped(tokens));
  s.context = static_cast<int>(tokens);
  return s;
}

}  // namespace

convention convention_of(const std::string& name) {
  std::vector<std::string> names;
  for (const named_convention& c : named_conventions) {
    if (name == c.name) return *c.value;
    names.emplace_back(c.name);
  }
  std::string all;
  for (const std::string& known : names) all += (all.empty() ? "" : ", ") + known;
  throw error(errc::invalid_argument, "--convention must be one of " + all + "; found \"" + name +
                                          "\", did you mean \"" + nearest_names(name, names, 1).front() + "\"?");
}

budgets budgets_of(const named_spec& of, const counting& by, const std::optional<named_spec>& control) {
  budgets b;
  b.of = of;
  b.context = by.context == 0 ? of.value.context : by.context;
  b.counted_by = by.flops;
  const spec timed = at_context(of.value, b.context);
  b.params = parameters(of.value);
  require_all_fit("params", b.params, parameter_figures);
  b.flops = flops(of.value, by.flops, b.context);
  require_all_fit("flops", b.flops, flop_figures);
  b.kv_cache = kv_cache(of.value, by.kv_bytes, b.context);
  require_all_fit("kv_cache", b.kv_cache, kv_figures);
  b.training = memory_of_training(timed);
  require_all_fit("memory.training", b.training, training_figures);
  b.inference = memory_of_inference(of.value, b.context, 16, by.kv_bytes);
  require_all_fit("memory.inference", b.inference, inference_figures);

  spec against = fully_active_control(of.value);
  b.control = "every expert active, no loop";
  if (control || !of.control.empty()) {
    const named_spec named = control ? *control : spec_of_argument(of.control);
    b.control = named.name;
    against = named.value;
  }
  b.sparsity_convention = by.convention_given ? by.flops : paper_accounting.flops;
  b.sparsity = sparsity(timed, at_context(against, b.context),
                        {.flops = b.sparsity_convention, .params = paper_accounting.params});
  return b;
}

budget_table match_of(const budgets& actual, const named_spec& expected, const std::string& tolerance,
                      const counting& by) {
  const auto within_tolerance = [&](const within& t) {
    return table_of(at_context(actual.of.value, actual.context), at_context(expected.value, actual.context), t,
                    {.flops = by.flops, .kv_bytes_per_element = by.kv_bytes});
  };
  budget_table match = within_tolerance(parse_tolerance(tolerance));
  const bool partners = actual.of.partner_of == expected.name || expected.partner_of == actual.of.name;
  if (match.ok || !partners || !tolerance.empty()) return match;
  return within_tolerance(presets::latent_tolerance);
}

nlohmann::ordered_json to_json(const budgets& b) {
  json j;
  j["name"] = b.of.name;
  j["spec"] = spec_to_json(b.of.value);
  put(j["params"], b.params, parameter_figures);
  json& f = j["flops"];
  f["convention"] = name_of(b.counted_by);
  f["unit"] = b.counted_by.unit == operation::flop ? "FLOP" : "MAC";
  f["context"] = b.context;
  f["covered"] = b.flops.covered();
  if (b.flops.covered()) {
    put(f, b.flops, flop_figures);
  } else {
    f["gap"] = describe(b.flops.gap);
    for (const char* name : {"forward_per_token", "train_per_token"}) f[name] = nullptr;
  }
  json& kv = j["kv_cache"];
  kv["bytes_per_element"] = b.kv_cache.bytes_per_element;
  kv["context"] = b.context;
  put(kv, b.kv_cache, kv_figures);
  json& memory = j["memory"];
  memory["training"]["tokens"] = b.context;
  put(memory["training"], b.training, training_figures);
  memory["inference"]["weight_bits"] = 16;
  put(memory["inference"], b.inference, inference_figures);
  json& sparse = j["sparsity"];
  sparse["control"] = b.control;
  sparse["convention"] = name_of(b.sparsity_convention);
  const bool counted = b.sparsity.gap == coverage_gap::none;
  sparse["n_eq"] = counted ? json(b.sparsity.n_eq) : json();
  sparse["s"] = counted ? json(b.sparsity.s) : json();
  if (!counted) sparse["gap"] = describe(b.sparsity.gap);
  return j;
}

nlohmann::ordered_json to_json(const budget_table& t) {
  json j;
  for (const table_row& row : t.rows) {
    json& r = j[row.metric];
    r["actual"] = row.actual;
    r["expected"] = row.expected;
    r["ratio"] = row.ratio;
    r["tolerance"] = row.tolerance;
    r["ok"] = row.ok;
    if (!row.note.empty()) r["note"] = row.note;
  }
  j["convention"] = t.convention;
  j["parameters"] = t.parameters;
  j["ok"] = t.ok;
  return j;
}

table budgets_table(const std::vector<budgets>& all) {
  table t{"Budgets", {{"budget", false}}, {}};
  for (const budgets& b : all) t.columns.push_back({b.of.name});
  t.columns.push_back({"unit", false});
  const auto row = [&](const std::string& name, const auto& cell_of, const std::string& unit) {
    t.rows.push_back({name});
    for (const budgets& b : all) t.rows.back().push_back(cell_of(b));
    t.rows.back().push_back(unit);
  };
  const auto whole = [&](const std::string& name, const auto& value_of, const std::string& unit) {
    row(name, [&](const budgets& b) { return grouped(value_of(b)); }, unit);
  };
  const auto parameters = [&](const std::string& name, std::int64_t parameter_count::* value) {
    whole(name, [&](const budgets& b) { return b.params.*value; }, "parameters");
  };
  parameters("parameters, total", &parameter_count::total);
  parameters("  active, with the input table", &parameter_count::active);
  parameters("  active, without it", &parameter_count::active_without_input_table);
  parameters("  non-embedding", &parameter_count::non_embedding);
  parameters("  stored, a tied head twice", &parameter_count::stored);
  const auto of_visits = [](const budgets& b) {
    return b.params.own_attention + b.params.coefficients + b.params.encoders + b.params.writebacks +
           b.params.projections;
  };
  if (std::ranges::any_of(all, [&](const budgets& b) { return of_visits(b) > 0; }))
    whole("  kept by single visits", of_visits, "parameters");
  const std::string unit = all.front().counted_by.unit == operation::flop ? "FLOP/token" : "MAC/token";
  const auto operations = [&](const std::string& name, std::int64_t flop_count::* value) {
    row(name, [&](const budgets& b) { return b.flops.covered() ? grouped(b.flops.*value) : "not counted"; }, unit);
  };
  operations("compute, forward", &flop_count::forward_per_token);
  operations("compute, training", &flop_count::train_per_token);
  whole("KV cache, a token", [](const budgets& b) { return b.kv_cache.bytes_per_token; }, "B");
  whole("KV cache, the context", [](const budgets& b) { return b.kv_cache.bytes_at_context; }, "B");
  const auto memory = [&](const std::string& name, const auto& total_of) {
    // One unit a row, the one of its largest figure.
    std::int64_t most = 0;
    for (const budgets& b : all) most = (std::max)(most, total_of(b));
    const binary_unit scale = binary_unit_of(static_cast<double>(most));
    const auto cell = [&](const budgets& b) {
      const double size = static_cast<double>(total_of(b)) / scale.bytes;
      return fixed(size, size < 1 ? 3 : 1);
    };
    row(name, cell, std::string(scale.name));
  };
  memory("memory, training", [](const budgets& b) { return b.training.total; });
  memory("memory, inference", [](const budgets& b) { return b.inference.total; });
  const auto sparse = [](const budgets& b, const std::string& text) {
    return b.sparsity.gap == coverage_gap::none ? text : "not counted";
  };
  row(
      "compute-equivalent active", [&](const budgets& b) { return sparse(b, grouped(fixed(b.sparsity.n_eq, 0))); },
      "parameters");
  row("sparsity", [&](const budgets& b) { return sparse(b, fixed(100 * b.sparsity.s, 2)); }, "%");

  for (const budgets& b : all) {
    t.notes.push_back(b.of.name + ": " + summary(b.of.value));
    if (!b.flops.covered()) t.notes.push_back(b.of.name + ": compute is " + describe(b.flops.gap));
  }
  const budgets& first = all.front();
  t.notes.push_back(std::string("compute: convention ") + name_of(first.counted_by) + ", context " +
                    grouped(first.context) + "; KV cache: " + std::to_string(first.kv_cache.bytes_per_element) +
                    " bytes an element, every (layer, visit) its own");
  t.notes.push_back(
      "memory: training one sequence of the context in fp32 with AdamW; inference with 16-bit weights and one "
      "sequence");
  std::string controls;
  for (const budgets& b : all)
    if (controls.find(b.control) == std::string::npos) controls += (controls.empty() ? "" : "; ") + b.control;
  t.notes.push_back("sparsity: against the fully active control (" + controls + "), convention " +
                    name_of(first.sparsity_convention));
  return t;
}

table match_table(const budget_table& t, const std::string& actual, const std::string& expected) {
  table shown_rows{"Match of " + actual + " with " + expected,
                   {{"budget", false}, {actual}, {expected}, {"ratio"}, {"tolerance"}, {"", false}},
                   {}};
  for (const table_row& row : t.rows) {
    const char* unit = row.metric == "flops"    ? "training FLOPs a token"
                       : row.metric == "params" ? "parameters"
                                                : "KV-cache bytes a token";
    shown_rows.rows.push_back({unit, grouped(row.actual), grouped(row.expected), fixed(row.ratio, 4),
                               shown(percent{std::llround(row.tolerance * 1e6)}), row.ok ? "ok" : "BROKEN"});
    if (!row.note.empty()) shown_rows.notes.push_back(std::string(unit) + ": " + row.note);
  }
  shown_rows.notes.push_back("counted alike: convention " + t.convention + ", parameters " + t.parameters);
  return shown_rows;
}

}  // namespace smelt::tool
