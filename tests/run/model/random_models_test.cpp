// Does the CPU backend train any architecture as the reference does?
#include <smelt/model/language_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <smelt/kernels/cpu/backend.hpp>
#include <smelt/kernels/cpu/threads_executor.hpp>
#include <smelt/kernels/reference/backend.hpp>
#include <vector>

#include "catch.hpp"
#include "support/backends.hpp"
#include "support/model_fixture.hpp"
#include "support/random_specs.hpp"

using namespace smelt;
using smelt_test::owned_batch;

namespace {

/// A model, weights that float holds exactly, and a batch of its own.
struct training_case {
  spec s;
  std::int64_t sequences, length;
  owned_batch batch;
  weight_buffer<float> weights;

  training_case(const spec& s_, std::int64_t sequences_, std::int64_t length_, std::uint64_t seed)
      : s(s_),
        sequences(sequences_),
        length(length_),
        batch(s.vocab, sequences, length, seed),
        weights(smelt_test::random_weights<float>(s, seed)) {}
};

/// What one step of training found.
template <class Scalar>
struct step_result {
  double nats = 0;
  std::vector<Scalar> gradient;
  std::vector<double> loads;  ///< of the routers that ran, in order
};

template <class Backend>
auto step(const training_case& c, Backend& backend, saved_activations saved) {
  using scalar = typename Backend::scalar;
  weight_buffer<scalar> w(c.s), dw(c.s);
  std::ranges::copy(c.weights.all(), w.all().begin());
  language_model<dynamic_arch, Backend> model(dynamic_arch(c.s), backend, c.sequences, c.length, saved);
  const loss_scale scale{.cross_entropy = 0.1, .balance = 0.3, .z = 0.05};
  step_result<scalar> result;
  const forward_result found = model.forward_and_backward(w, c.batch.view(), scale, dw);
  result.nats = found.cross_entropy.nats;
  result.gradient.assign(dw.all().begin(), dw.all().end());
  for (const executed_layer e : schedule(c.s))
    for (const router_evaluation& r : found.evaluations)
      if (r.layer == e.layer && r.visit == e.visit)
        for (const scalar l : model.layer(e.index).routed.load) result.loads.push_back(l);
  return result;
}

template <class Scalar>
bool same_bits(const std::vector<Scalar>& a, const std::vector<Scalar>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Scalar)) == 0;
}

/// Length of the difference of two gradients beside the length of the second.
double distance(const std::vector<float>& found, const std::vector<double>& expected) {
  double difference = 0;
  double length = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    length += expected[i] * expected[i];
  }
  return std::sqrt(difference / (std::max)(length, 1e-20));
}

}  // namespace

TEST_CASE("random models have the gradients of the reference, with the same bits however they are computed",
          "[model][threads]") {
  smelt::testing::random_specs random(1);
  reference<double> in_double;
  int compared = 0;
  int routed_apart = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const spec s = random.executable();
    const training_case c(s, random.between(1, 4), random.between(1, s.context), seed);
    const step_result<double> expected = step(c, in_double, saved_activations::all);
    for (const smelt::test::cpu_variant& variant : smelt::test::usable_variants()) {
      INFO("model " << seed << ", " << variant.name());
      const auto run = [&](int threads, saved_activations saved) {
        cpu backend{threads_executor(threads), variant.compute, variant.set};
        backend.fill_scratch(std::byte{0xFF});
        return step(c, backend, saved);
      };
      const step_result<float> found = run(2, saved_activations::all);
      for (const int threads : {1, 3, 7}) {
        INFO(threads << " threads");
        CHECK(same_bits(run(threads, saved_activations::all).gradient, found.gradient));
      }
      CHECK(same_bits(run(2, saved_activations::inputs).gradient, found.gradient));
      if (variant.compute == compute_type::bf16) continue;  // rounds enough to choose other experts
      ++compared;
      // Two experts that a token likes equally well may change places; then nothing can be compared.
      if (!std::ranges::equal(found.loads, expected.loads,
                              [](double a, double b) { return std::fabs(a - b) < 1e-6; })) {
        ++routed_apart;
        continue;
      }
      CHECK(found.nats == Approx(expected.nats).epsilon(1e-5).margin(1e-4));
      CHECK(distance(found.gradient, expected.gradient) < 5e-3);
    }
  }
  CHECK(routed_apart * 10 < compared);
}
