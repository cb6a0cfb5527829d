// How fast does a model read a prompt, and how fast does it write? Sequences of their own, from an empty cache: a
// prompt as long as the context (512 tokens at most), and 64 tokens one by one.
//
//   decode SPEC.json [--quick] [--instruction-set NAME] [--json FILE]       on all cores it is allowed to use
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/core/random.hpp>
#include <smelt/infer/decoder.hpp>
#include <smelt/io/spec_json.hpp>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/default_executor.hpp>
#include <smelt/model/architecture_handle.hpp>
#include <smelt/model/weights.hpp>
#include <string>
#include <vector>

#include "support/allowed_cores.hpp"
#include "support/interleaved.hpp"
#include "support/options.hpp"

namespace {

using namespace smelt::bench;
using backend = smelt::cpu<smelt::cpu_default_executor>;

smelt::spec read_spec(const std::string& name) {
  std::ifstream file(name);
  const nlohmann::json document = nlohmann::json::parse(file, nullptr, false);
  if (document.is_discarded()) {
    throw smelt::error(smelt::errc::io, "SPEC.json must be a file of JSON; found '" + name + "'");
  }
  return smelt::spec_from_json(document);
}

int run(const options& chosen) {
  const smelt::spec s = read_spec(chosen.spec);
  backend kernels(smelt::cpu_default_executor(allowed_cores()), smelt::compute_type::fp32, chosen.set);
  smelt::weight_buffer<float> weights(s);
  smelt::initialise(weights, s, 1);
  const std::int64_t longest = (std::min)(s.context, 512);
  smelt::decoder<smelt::dynamic_arch, backend> model(smelt::dynamic_arch(s), kernels, weights, longest);

  std::vector<std::int32_t> tokens(static_cast<std::size_t>(longest));
  const smelt::random_stream random(1, 0);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(s.vocab), i));
  }
  const auto written = static_cast<std::int64_t>((std::min)(tokens.size(), std::size_t{64}));
  std::vector<double> reading;
  std::vector<double> writing;
  for (int round = 0; round < (chosen.quick ? 2 : 15); ++round) {
    model.clear();
    reading.push_back(double(longest) / seconds_of(1, [&] { static_cast<void>(model.prefill(tokens)); }));
    model.clear();
    std::size_t next = 0;
    writing.push_back(double(written) / seconds_of(written, [&] { static_cast<void>(model.decode(tokens[next++])); }));
  }
  const nlohmann::json document{{"threads", kernels.threads()},
                                {"instruction_set", name_of(kernels.instructions())},
                                {"prompt_tokens", longest},
                                {"decoded_tokens", written},
                                {"prefill_tokens_per_second", median(reading)},
                                {"decode_tokens_per_second", median(writing)}};
  std::printf("%d threads: a prompt of %lld tokens at %.0f tokens/s, %lld tokens one by one at %.0f tokens/s\n",
              kernels.threads(), static_cast<long long>(longest), median(reading), static_cast<long long>(written),
              median(writing));
  write_json(chosen, document);
  return 0;
}

}  // namespace

int main(int count, char** arguments) try {
  const std::optional<options> chosen = parse_options(count, arguments, true);
  return chosen ? run(*chosen) : 2;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "decode: %s\n", problem.what());
  return 1;
}
