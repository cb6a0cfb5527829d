// smelt match: which looped architecture costs what this one costs?
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <smelt/budget/equal_flops.hpp>
#include <smelt/budget/match_report.hpp>
#include <smelt/core/nearest_name.hpp>
#include <smelt/io/spec_json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "budget_report.hpp"
#include "command.hpp"
#include "cpp_source.hpp"
#include "loop_option.hpp"
#include "spec_argument.hpp"
#include "table.hpp"
#include "tolerance_option.hpp"

namespace smelt::tool {

namespace {

struct match_arguments {
  std::string base;
  std::string loop;
  std::vector<std::string> vary;
  std::string tolerance;
  std::string convention;
  std::string header;
  std::int64_t tokens = 0;  ///< of the base's training; 0 is not given
  std::int64_t kv_bytes = 2;
  std::int64_t width_multiple = 0;
  std::int64_t hidden_multiple = 0;
  std::int64_t head_dim_multiple = 2;
  std::int64_t experts_multiple = 1;
};

/// What may vary: exactly the named fields; without names, everything but the ratio of hidden to width.
may_vary variation_of(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  may_vary vary{.width = false, .experts = false, .heads = false, .kv_heads = false, .head_dim = false};
  for (const std::string& name : names) {
    if (name == "width")
      vary.width = true;
    else if (name == "experts")
      vary.experts = true;
    else if (name == "heads")
      vary.heads = true;
    else if (name == "kv_heads")
      vary.kv_heads = true;
    else if (name == "head_dim")
      vary.head_dim = true;
    else if (name == "hidden")
      vary.hidden = hidden_rule::free;
    else
      throw error(errc::invalid_argument,
                  "--vary names fields of width, experts, heads, kv_heads, head_dim and hidden; found \"" + name +
                      "\", did you mean \"" +
                      nearest_names(name, {"width", "experts", "heads", "kv_heads", "head_dim", "hidden"}, 1).front() +
                      "\"?");
  }
  return vary;
}

/// For how long the partner trains on what the base's training costs.
struct equal_training {
  double ratio = 0;          ///< of the partner's tokens to the base's
  std::int64_t partner = 0;  ///< tokens, when the base's are given
};
equal_training equal_training_of(const spec& partner, const spec& base, std::int64_t tokens, const convention& by) {
  // Per token of the base, with more digits than are printed.
  constexpr std::int64_t unit = 1'000'000'000;
  const char* what = "the partner's training tokens";
  return {static_cast<double>(require_fits(at_equal_flops(partner, base, unit, by), what)) / static_cast<double>(unit),
          require_fits(at_equal_flops(partner, base, tokens, by), what)};
}

/// The largest multiple that can be asked for.
constexpr std::int64_t max_multiple = 65'536;

/// The sizes that the matcher may change, base beside partner.
table shapes_table(const named_spec& base, const spec& partner, bool found) {
  table t{"Sizes", {{"field", false}, {base.name}, {found ? "partner" : "nearest"}, {"ratio"}}, {}};
  const auto row = [&](const char* name, int of_base, int of_partner) {
    t.rows.push_back({name, std::to_string(of_base), std::to_string(of_partner),
                      of_base == 0 ? "" : fixed(static_cast<double>(of_partner) / of_base, 3)});
  };
  const spec& b = base.value;
  row("layers executed", schedule(b).size(), schedule(partner).size());
  row("width", b.width, partner.width);
  row("attention.heads", b.attention.heads, partner.attention.heads);
  row("attention.kv_heads", b.attention.kv_heads, partner.attention.kv_heads);
  if (has_latent_attention(b))
    row("attention.latent.kv_rank", b.attention.latent.kv_rank, partner.attention.latent.kv_rank);
  else
    row("attention.head_dim", b.attention.head_dim, partner.attention.head_dim);
  row("experts.stored", b.experts.stored, partner.experts.stored);
  row("experts.hidden", b.experts.hidden, partner.experts.hidden);
  if (b.experts.shared_hidden > 0) row("experts.shared_hidden", b.experts.shared_hidden, partner.experts.shared_hidden);
  if (b.dense_layers > 0) row("dense_hidden", b.dense_hidden, partner.dense_hidden);
  return t;
}

std::string training_text(const equal_training& equal, std::int64_t tokens, const std::string& base) {
  std::string text = "Training at equal total FLOPs: " + fixed(equal.ratio, 4) + " tokens for every token of " + base;
  if (tokens > 0) text += ", " + grouped(equal.partner) + " for " + grouped(tokens);
  return text + "; steps likewise\n";
}

int print_match(const common_options& common, const match_arguments& a) {
  const within tolerance = parse_tolerance(a.tolerance);
  const loop_spec loop = parse_loop(a.loop);
  if (!a.header.empty()) require_identifier(a.header);
  if (!a.header.empty() && common.json)
    throw error(errc::invalid_argument, "--header and --json are two kinds of output; choose one");
  match_options options{.vary = variation_of(a.vary),
                        .width_multiple = static_cast<int>(a.width_multiple),
                        .hidden_multiple = static_cast<int>(a.hidden_multiple),
                        .head_dim_multiple = static_cast<int>(a.head_dim_multiple),
                        .experts_multiple = static_cast<int>(a.experts_multiple)};
  if (!a.convention.empty()) options.by.flops = convention_of(a.convention);
  options.by.kv_bytes_per_element = static_cast<int>(a.kv_bytes);

  const named_spec base = spec_of_argument(a.base);
  const match_result r = find_match(base.value, loop, tolerance, options);
  const bool searched = r.found() || r.outcome == match_outcome::flops_unmet ||
                        r.outcome == match_outcome::params_unmet || r.outcome == match_outcome::kv_cache_unmet ||
                        r.outcome == match_outcome::not_together;
  // A request that cannot be searched is wrong input, and this throws what is wrong with it.
  if (!searched) static_cast<void>(match_or_throw(base.value, loop, tolerance, options));

  const equal_training equal = equal_training_of(r.partner, base.value, a.tokens, options.by.flops);
  const budget_table match = table_of(r.partner, base.value, tolerance, options.by);
  if (common.json) {
    nlohmann::ordered_json j;
    j["base"] = base.name;
    j["found"] = r.found();
    if (!r.found()) j["reason"] = describe(r);
    j["spec"] = spec_to_json(r.partner);
    j["match"] = to_json(match);
    nlohmann::ordered_json& training = j["training_at_equal_flops"];
    training["tokens_ratio"] = equal.ratio;
    if (a.tokens > 0) training["base_tokens"] = a.tokens;
    if (a.tokens > 0) training["tokens"] = equal.partner;
    std::cout << j.dump(2) << "\n";
  } else if (!a.header.empty() && r.found()) {
    std::cout << cpp_header(a.header, common.command_line, base.value, r.partner, tolerance, options.by);
  } else if (!a.header.empty()) {
    std::cerr << "smelt: error: " << describe(r) << "\n";
  } else {
    std::cout << to_text(shapes_table(base, r.partner, r.found())) << "\n"
              << to_text(match_table(match, r.found() ? "partner" : "nearest", base.name)) << "\n"
              << training_text(equal, a.tokens, base.name);
    if (!r.found()) std::cout << "\nno partner: " << describe_failure(r) << "\n";
  }
  return r.found() ? exit_fine : exit_check_failed;
}

}  // namespace

void add_match(CLI::App& app, const common_options& common, action& chosen) {
  CLI::App* command = app.add_subcommand("match", "Solve for the looped architecture with the budgets of BASE");
  const auto a = std::make_shared<match_arguments>();
  command->add_option("BASE", a->base, "A preset's name or a JSON file")->required()->type_name("");
  command->add_option("--loop", a->loop, loop_help)->required()->type_name("LOOP");
  command
      ->add_option("--vary", a->vary,
                   "Fields that may change: width,experts,heads,kv_heads,head_dim,hidden; unless named, hidden keeps "
                   "its ratio to "
                   "the width")
      ->delimiter(',')
      ->type_name("LIST");
  command->add_option("--tolerance", a->tolerance, "Such as flops=4%,params=1%,kv=4% (the default)")->type_name("LIST");
  command->add_option("--convention", a->convention, "How FLOPs are counted: smelt (default), paper, ...")
      ->type_name("NAME");
  add_count(*command, "--tokens", a->tokens, 1, "Training tokens of BASE: also print the partner's for the same FLOPs");
  add_count(*command, "--kv-bytes", a->kv_bytes, 1, "Bytes of a KV-cache element (default: 2)", max_kv_bytes);
  add_count(*command, "--width-multiple", a->width_multiple, 1, "The width is a multiple of this (default: BASE's)",
            max_multiple);
  add_count(*command, "--hidden-multiple", a->hidden_multiple, 1, "The experts' width likewise (default: BASE's)",
            max_multiple);
  add_count(*command, "--head-dim-multiple", a->head_dim_multiple, 1, "The head size likewise (default: 2)",
            max_multiple);
  add_count(*command, "--experts-multiple", a->experts_multiple, 1, "The stored experts likewise (default: 1)",
            max_multiple);
  command->add_option("--header", a->header, "Print a C++ header that names the partner NAME and checks it")
      ->type_name("NAME");
  command->footer(
      "Exit 1 when no architecture meets every budget; the nearest one is shown.\n"
      "\nExamples:\n" +
      loop_examples("smelt match micro") +
      "  smelt match smelt-200m-baseline --loop middle:c2,own+1 --tolerance flops=1%,params=1%,kv=1% --width-multiple "
      "8 "
      "--tokens 40G\n"
      "  smelt match smelt-200m-baseline --loop middle:2 --tolerance flops=1%,params=1%,kv=1% --width-multiple 8\n"
      "  smelt match nano --loop middle:2 --header my_model > my_model.hpp\n"
      "  smelt match nano --loop 1+2:3 --json > partner.json && smelt budget partner.json --against nano");
  command->callback([a, &common, &chosen] { chosen = [a, &common] { return print_match(common, *a); }; });
}

}  // namespace smelt::tool
