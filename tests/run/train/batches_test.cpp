// Does every batch hold the windows that its seed and number say?
#include <smelt/io/atomic_file.hpp>
#include <smelt/train/batches.hpp>

#include "catch.hpp"
#include "support/synthetic_text.hpp"
#include "support/temporary_folder.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;

namespace {

smelt::token_sequence training_text(std::uint64_t seed, std::uint64_t documents) {
  smelt::dataset_builder builder(0.0);
  for (const auto& d : smelt_test::synthetic_documents(seed, documents)) builder.add(d);
  return std::move(builder).finish().train;
}

using ids = std::vector<std::int32_t>;

// Three documents of 2, 3 and 1 bytes: a b . c d e . f .
smelt::token_sequence three_documents() {
  return {{'a', 'b', 256, 'c', 'd', 'e', 256, 'f', 256}, {0, 3, 7}, {0, 1, 2}};
}

}  // namespace

TEST_CASE("windows are counted so that every input has a target", "[batches]") {
  CHECK(smelt::usable_windows(0, 8) == 0);
  CHECK(smelt::usable_windows(1, 8) == 0);
  CHECK(smelt::usable_windows(8, 8) == 0);
  CHECK(smelt::usable_windows(9, 8) == 1);
  CHECK(smelt::usable_windows(16, 8) == 1);
  CHECK(smelt::usable_windows(17, 8) == 2);
}

TEST_CASE("document masks hide other documents and the step between them", "[batches]") {
  const smelt::token_sequence text = three_documents();
  smelt::batch batch;
  smelt::batch_plan plan{.context = 4, .sequences = 2, .seed = 0, .document_masks = true};
  smelt::fill_validation_batch(text, plan, 0, batch);
  CHECK(batch.inputs == ids{'a', 'b', 256, 'c', 'd', 'e', 256, 'f'});
  CHECK(batch.targets == ids{'b', 256, -1, 'd', 'e', 256, -1, 256});
  CHECK(batch.first == ids{0, 0, 0, 3, 0, 0, 0, 3});
  CHECK(batch.categories == ids{0, 0, -1, 1, 1, 1, -1, 2});
  CHECK(smelt::target_count(batch) == 6);

  plan.document_masks = false;
  smelt::fill_validation_batch(text, plan, 0, batch);
  CHECK(batch.inputs == ids{'a', 'b', 256, 'c', 'd', 'e', 256, 'f'});
  CHECK(batch.targets == ids{'b', 256, 'c', 'd', 'e', 256, 'f', 256});
  CHECK(batch.first == ids{0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(batch.categories == ids{0, 0, 1, 1, 1, 1, 2, 2});
  CHECK(smelt::target_count(batch) == 8);
}

TEST_CASE("windows agree with the definition at every position", "[batches]") {
  const smelt::token_sequence text = training_text(1, 40);
  const std::int64_t context = 37;
  const std::int64_t windows = smelt::usable_windows(static_cast<std::int64_t>(text.tokens.size()), context);
  const auto document_of = [&](std::int64_t at) {
    std::size_t d = 0;
    while (d + 1 < text.starts.size() && text.starts[d + 1] <= at) ++d;
    return d;
  };
  smelt::batch batch;
  std::int64_t wrong = 0;
  for (const bool masks : {true, false}) {
    const smelt::batch_plan plan{.context = context, .sequences = 1, .seed = 0, .document_masks = masks};
    for (std::int64_t w = 0; w < windows; ++w) {
      smelt::fill_validation_batch(text, plan, w, batch);
      for (std::int64_t i = 0; i < context; ++i) {
        const auto cell = static_cast<std::size_t>(i);
        const std::int64_t at = w * context + i;
        const std::size_t document = document_of(at);
        const std::size_t next_document = document_of(at + 1);
        const bool hidden = masks && document != next_document;
        const std::int64_t first = masks ? (std::max)(std::int64_t{0}, text.starts[document] - w * context) : 0;
        wrong += batch.inputs[cell] != text.tokens[static_cast<std::size_t>(at)];
        wrong += batch.targets[cell] != (hidden ? -1 : text.tokens[static_cast<std::size_t>(at + 1)]);
        wrong += batch.categories[cell] != (hidden ? -1 : text.categories[next_document]);
        wrong += batch.first[cell] != first;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("each epoch visits every window once, in an order of its own", "[batches]") {
  constexpr std::int64_t windows = 53;
  std::vector<std::vector<std::int64_t>> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < windows; ++i) {
      order.push_back(smelt::training_window(epoch * windows + i, windows, 7));
    }
    const std::set<std::int64_t> distinct(order.begin(), order.end());
    CHECK(distinct.size() == windows);
    CHECK(*distinct.begin() == 0);
    CHECK(*distinct.rbegin() == windows - 1);
    CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
    epochs.push_back(order);
  }
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
}

TEST_CASE("a batch depends on the seed and its number, not on what came before", "[batches]") {
  const smelt::token_sequence text = training_text(2, 30);
  const smelt::batch_plan plan{.context = 64, .sequences = 5, .seed = 11, .document_masks = true};
  std::vector<ids> in_turn;
  smelt::batch batch;
  for (std::int64_t step = 0; step < 40; ++step) {  // several epochs
    smelt::fill_training_batch(text, plan, step * plan.sequences, batch);
    in_turn.push_back(batch.inputs);
  }
  smelt::batch resumed;
  for (std::int64_t step = 39; step >= 0; --step) {
    smelt::fill_training_batch(text, plan, step * plan.sequences, resumed);
    CHECK(resumed.inputs == in_turn[static_cast<std::size_t>(step)]);
  }

  smelt::batch_plan other = plan;
  other.seed = 12;
  smelt::fill_training_batch(text, other, 0, resumed);
  CHECK(resumed.inputs != in_turn[0]);

  // Two half batches are the whole one: accumulating changes nothing about the order.
  other = plan;
  other.sequences = 10;
  smelt::fill_training_batch(text, other, 0, resumed);
  ids joined = in_turn[0];
  joined.insert(joined.end(), in_turn[1].begin(), in_turn[1].end());
  CHECK(resumed.inputs == joined);
}

TEST_CASE("filling a batch again reuses its memory", "[batches]") {
  const smelt::token_sequence text = training_text(3, 10);
  const smelt::batch_plan plan{.context = 32, .sequences = 4, .seed = 1, .document_masks = true};
  smelt::batch batch;
  smelt::fill_training_batch(text, plan, 0, batch);
  const auto* const inputs = batch.inputs.data();
  const auto* const targets = batch.targets.data();
  for (std::int64_t i = 1; i < 20; ++i) smelt::fill_training_batch(text, plan, 4 * i, batch);
  CHECK(batch.inputs.data() == inputs);
  CHECK(batch.targets.data() == targets);
  CHECK(batch.inputs.size() == 128);
}

TEST_CASE("a validation pass covers every window once, whatever the seed and the batch", "[batches]") {
  const smelt::token_sequence text = training_text(4, 20);
  const std::int64_t context = 50;
  const std::int64_t windows = smelt::usable_windows(static_cast<std::int64_t>(text.tokens.size()), context);
  for (const std::int64_t sequences : {std::int64_t{1}, std::int64_t{7}, windows, windows + 3}) {
    const smelt::batch_plan plan{.context = context, .sequences = sequences, .seed = 99, .document_masks = false};
    ids inputs;
    smelt::batch batch;
    for (std::int64_t i = 0; i < smelt::validation_batches(text, plan); ++i) {
      smelt::fill_validation_batch(text, plan, i, batch);
      CHECK(batch.sequences >= 1);
      CHECK(batch.sequences <= sequences);
      CHECK(batch.inputs.size() == static_cast<std::size_t>(batch.sequences * batch.context));
      inputs.insert(inputs.end(), batch.inputs.begin(), batch.inputs.end());
    }
    CHECK(inputs == ids(text.tokens.begin(), text.tokens.begin() + windows * context));
  }
}

TEST_CASE("too little text says how much there is and how much is needed", "[batches]") {
  constexpr std::int64_t context = 16;
  const smelt::batch_plan plan{.context = context, .sequences = 2, .seed = 0, .document_masks = true};
  const smelt_test::temporary_folder folder;
  const auto train = [&](std::int64_t bytes) {
    smelt::write_file(folder.path() / "a.txt", std::string(static_cast<std::size_t>(bytes), 'x'));
    const auto data = smelt::load_dataset(folder.path() / "a.txt", {.validation_fraction = 0.0});
    smelt::batch batch;
    smelt::fill_training_batch(data.train, plan, 0, batch);
    return smelt::require_windows(data.train, plan, "training");
  };
  CHECK_THROWS_WITH(train(0), ContainsSubstring("an empty file") && ContainsSubstring("at least 1 byte"));
  // A file of n bytes is n + 1 tokens, its end included.
  CHECK_THROWS_WITH(train(1), "too little training text: have 2 tokens, need at least 17 for one window of context 16");
  CHECK_THROWS_WITH(train(context - 1), ContainsSubstring("have 16 tokens, need at least 17"));
  CHECK(train(context) == 1);
  CHECK(train(context + 1) == 1);
  CHECK(train(2 * context) == 2);

  smelt::batch batch;
  CHECK_THROWS_WITH(smelt::validation_batches({}, plan),
                    ContainsSubstring("too little validation text: have 0 tokens"));
  CHECK_THROWS_WITH(smelt::fill_validation_batch({}, plan, 0, batch), ContainsSubstring("have 0 tokens"));
}

TEST_CASE("a plan or a position that makes no sense is refused", "[batches]") {
  const smelt::token_sequence text = three_documents();
  smelt::batch batch;
  const smelt::batch_plan good{.context = 4, .sequences = 1, .seed = 0, .document_masks = true};
  smelt::batch_plan plan = good;
  plan.context = 0;
  CHECK_THROWS_WITH(smelt::fill_training_batch(text, plan, 0, batch),
                    ContainsSubstring("context must be at least 1, found 0"));
  plan = good;
  plan.sequences = -2;
  CHECK_THROWS_WITH(smelt::fill_training_batch(text, plan, 0, batch), ContainsSubstring("at least 1, found -2"));
  CHECK_THROWS_WITH(smelt::fill_training_batch(text, good, -1, batch), ContainsSubstring("asked for number -1"));
  CHECK_THROWS_WITH(smelt::fill_validation_batch(text, good, 2, batch), ContainsSubstring("have 2, numbered from 0"));
  CHECK_THROWS_AS(smelt::fill_validation_batch(text, good, -1, batch), smelt::error);

  smelt::token_sequence broken = text;
  broken.categories.pop_back();
  CHECK_THROWS_WITH(smelt::fill_training_batch(broken, good, 0, batch), ContainsSubstring("each its category"));
  broken = text;
  broken.starts.front() = 1;
  CHECK_THROWS_AS(smelt::fill_training_batch(broken, good, 0, batch), smelt::error);
}
