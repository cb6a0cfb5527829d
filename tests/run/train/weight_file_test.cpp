// Do weights survive a file, and is every tensor that does not fit named?
#include <smelt/train/weight_file.hpp>

#include <algorithm>
#include <filesystem>
#include <smelt/budget/parameters.hpp>
#include <smelt/model/weights.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/small_specs.hpp"
#include "support/temporary_folder.hpp"

using namespace smelt;
using Catch::Matchers::ContainsSubstring;

namespace {

/// `tiny` with a tied head and three layers' worth of names to get wrong.
spec tied_spec() {
  spec s = smelt_test::tiny;
  s.tied_head = true;
  return s;
}

weight_buffer<float> filled(const spec& s) {
  weight_buffer<float> w(s);
  initialise(w, s, 3);
  return w;
}

bool same(const weight_buffer<float>& a, const weight_buffer<float>& b) {
  return std::equal(a.all().begin(), a.all().end(), b.all().begin(), b.all().end());
}

/// What reading `path` into a buffer of `s` says; the buffer must not have changed.
std::string refusal(const std::filesystem::path& path, const spec& s) {
  weight_buffer<float> buffer(s);
  std::ranges::fill(buffer.all(), 42.0F);
  try {
    static_cast<void>(read_tensors(safetensors::file(path), buffer, s));
  } catch (const error& e) {
    CHECK(e.code() == errc::mismatch);
    CHECK(std::ranges::all_of(buffer.all(), [](float x) { return x == 42.0F; }));
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("weights survive a file for every kind of model", "[weight_file]") {
  const smelt_test::temporary_folder folder;
  const auto path = folder.path() / "model.safetensors";
  for (const auto& [name, s] : smelt_test::all_variants()) {
    INFO(name);
    const weight_buffer<float> saved = filled(s);
    safetensors::save(path, file_tensors(saved, s));
    weight_buffer<float> read(s);
    CHECK(read_tensors(safetensors::file(path), read, s).empty());
    CHECK(same(saved, read));
    CHECK(static_cast<std::int64_t>(safetensors::file(path).entries().size()) == tensor_count(s));
  }
}

TEST_CASE("a tied model reads files with and without a stored head", "[weight_file]") {
  const smelt_test::temporary_folder folder;
  const auto path = folder.path() / "model.safetensors";
  const spec s = tied_spec();
  const weight_buffer<float> saved = filled(s);
  std::vector<safetensors::tensor> tensors = file_tensors(saved, s);
  CHECK(std::ranges::none_of(tensors, [](const auto& t) { return t.name == "lm_head.weight"; }));
  const auto elements = [](const std::vector<safetensors::tensor>& all) {
    std::size_t n = 0;
    for (const auto& t : all) n += t.values.size();
    return static_cast<std::int64_t>(n);
  };
  CHECK(elements(tensors) == parameters(s).total);

  const matrix_view<const float> table = saved.head();
  std::vector<float> head(table.data, table.data + table.size());
  tensors.push_back({"lm_head.weight", {s.vocab, s.width}, head});
  CHECK(elements(tensors) == parameters(s).stored);
  CHECK(parameters(s).stored - parameters(s).total == std::int64_t{s.vocab} * s.width);
  safetensors::save(path, tensors);
  weight_buffer<float> read(s);
  const std::vector<std::string> notes = read_tensors(safetensors::file(path), read, s);
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], ContainsSubstring("lm_head.weight") && ContainsSubstring("model.embed_tokens.weight"));
  CHECK(same(saved, read));

  // A head of other values is named, and nothing is read.
  head[5] += 1.0F;
  safetensors::save(path, tensors);
  CHECK_THAT(refusal(path, s), ContainsSubstring("'lm_head.weight' F32 [11, 8] differs"));
  // An untied model takes both as they are, and says what a tied file lacks.
  spec untied = s;
  untied.tied_head = false;
  weight_buffer<float> both(untied);
  CHECK(read_tensors(safetensors::file(path), both, untied).empty());
  CHECK(both(weight::head).data[5] == both(weight::embedding).data[5] + 1.0F);
  tensors.pop_back();
  safetensors::save(path, tensors);
  CHECK_THAT(refusal(path, untied),
             ContainsSubstring("missing tensor 'lm_head.weight' [11, 8]") && ContainsSubstring("tied head"));
}

TEST_CASE("every tensor that does not fit is listed with both shapes", "[weight_file]") {
  const smelt_test::temporary_folder folder;
  const auto path = folder.path() / "model.safetensors";
  const spec s = smelt_test::tiny;
  const weight_buffer<float> saved = filled(s);
  std::vector<safetensors::tensor> tensors = file_tensors(saved, s);
  // One expert dropped, one transposed, one name nobody knows.
  const auto named = [&](const std::string& name) {
    const auto found = std::ranges::find(tensors, name, &safetensors::tensor::name);
    REQUIRE(found != tensors.end());
    return found;
  };
  tensors.erase(named("model.layers.1.mlp.experts.3.down_proj.weight"));
  named("model.layers.0.mlp.experts.2.up_proj.weight")->shape = {8, 6};
  const std::vector<float> extra(4);
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {4}, extra});
  safetensors::save(path, tensors);
  CHECK_THAT(refusal(path, s),
             ContainsSubstring("missing tensor 'model.layers.1.mlp.experts.3.down_proj.weight' [8, 6]") &&
                 ContainsSubstring("wrong shape of 'model.layers.0.mlp.experts.2.up_proj.weight': have [8, 6], need "
                                   "[6, 8] (transposed)") &&
                 ContainsSubstring("unexpected tensor 'model.layers.0.self_attn.rotary_emb.inv_freq' [4]") &&
                 ContainsSubstring(path.string()));
}

TEST_CASE("an expert of another width and a table of another vocabulary show found and needed", "[weight_file]") {
  const smelt_test::temporary_folder folder;
  const auto path = folder.path() / "model.safetensors";
  safetensors::save(path, file_tensors(filled(smelt_test::tiny), smelt_test::tiny));
  spec wider = smelt_test::tiny;
  wider.experts.hidden = 7;
  const std::string experts = refusal(path, wider);
  for (int layer = 0; layer < 2; ++layer)
    for (int e = 0; e < 4; ++e)
      CHECK_THAT(experts, ContainsSubstring("'model.layers." + std::to_string(layer) + ".mlp.experts." +
                                            std::to_string(e) + ".gate_proj.weight': have [6, 8], need [7, 8]"));
  spec padded = smelt_test::tiny;
  padded.padded_vocab = 16;
  CHECK_THAT(refusal(path, padded), ContainsSubstring("'model.embed_tokens.weight': have [11, 8], need [16, 8]") &&
                                        ContainsSubstring("'lm_head.weight': have [11, 8], need [16, 8]"));
  spec larger = smelt_test::tiny;
  larger.vocab = 12;
  CHECK_THAT(refusal(path, larger), ContainsSubstring("have [11, 8], need [12, 8]"));
}

TEST_CASE("moments are read under their own names, all or none", "[weight_file]") {
  const smelt_test::temporary_folder folder;
  const auto path = folder.path() / "optimizer.safetensors";
  const spec s = smelt_test::tiny;
  const weight_buffer<float> m = filled(s);
  weight_buffer<float> v(s);
  initialise(v, s, 4);
  std::vector<safetensors::tensor> tensors = file_tensors(m, s, first_moment_suffix);
  for (auto& t : file_tensors(v, s, second_moment_suffix)) tensors.push_back(t);
  safetensors::save(path, tensors);
  weight_buffer<float> first(s), second(s);
  read_moments(safetensors::file(path), first, second, s);
  CHECK(same(first, m));
  CHECK(same(second, v));

  tensors.pop_back();
  safetensors::save(path, tensors);
  std::ranges::fill(first.all(), 1.0F);
  CHECK_THROWS_WITH(read_moments(safetensors::file(path), first, second, s),
                    ContainsSubstring("missing tensor 'lm_head.weight.second_moment'"));
  CHECK(std::ranges::all_of(first.all(), [](float x) { return x == 1.0F; }));
  CHECK(same(second, v));
}
