// Which specs do property tests try? Random valid ones, the same in every run.
#pragma once

#include <cstdint>
#include <random>
#include <smelt/spec/rules.hpp>
#include <smelt/spec/spec.hpp>

namespace smelt::testing {

/// Draws valid specs that use every field, small enough that every figure fits.
class random_specs {
 public:
  explicit random_specs(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] spec operator()() {
    spec s;
    s.vocab = between(1, 5'000);
    s.padded_vocab = flip() ? s.vocab + between(0, 64) : 0;
    s.context = between(1, 3'000);
    s.width = between(1, 700);
    s.layers = between(1, 40);
    s.dense_layers = flip() ? between(0, s.layers) : 0;
    s.dense_hidden = between(1, 900);
    s.dense_bias = flip();
    s.ffn = flip() ? ffn_kind::gelu : ffn_kind::swiglu;
    s.positions = flip() ? position_kind::learned : position_kind::rotary;
    attention_spec& a = s.attention;
    a.kv_heads = between(1, 8);
    a.heads = a.kv_heads * between(1, 6);
    a.head_dim = 2 * between(1, 64);
    a.qkv_bias = flip();
    a.o_bias = flip();
    a.norm = static_cast<qk_norm>(between(0, 2));
    a.sinks = flip();
    a.window = flip() ? between(1, 600) : 0;
    if (flip()) a.global_layers = every_layer(between(1, 5), between(0, 5));
    if (between(0, 3) == 0)
      a.latent = {.kv_rank = between(1, 90),
                  .q_rank = flip() ? between(1, 90) : 0,
                  .nope_dim = between(1, 64),
                  .rope_dim = 2 * between(1, 32),
                  .value_dim = between(1, 64)};
    experts_spec& e = s.experts;
    e.stored = between(1, 300);
    e.active = between(1, e.stored < 12 ? e.stored : 12);
    e.hidden = between(1, 500);
    e.shared_hidden = flip() ? between(1, 500) : 0;
    e.shared_gate = e.shared_hidden > 0 && flip();
    e.bias = flip();
    e.router_bias = flip();
    e.balance_bias = flip();
    s.norms_per_layer = flip() ? 2 : 4;
    s.norm_bias = flip();
    s.tied_head = flip();
    s.head_bias = flip();
    if (flip()) {
      loop(s, max_plans);
      s.exit_gate = s.loop.visits.count > 1 && flip();
    }
    return s;
  }

  /// Draws a small spec that models can run; every size has remainders.
  [[nodiscard]] spec executable() {
    spec s;
    s.vocab = between(1, 300);
    s.padded_vocab = flip() ? s.vocab + between(0, 20) : 0;
    s.context = between(1, 40);
    s.width = between(1, 96);
    s.layers = between(1, 5);
    s.dense_layers = flip() ? between(0, s.layers) : 0;
    s.dense_hidden = between(1, 90);
    attention_spec& a = s.attention;
    a.kv_heads = between(1, 3);
    a.heads = a.kv_heads * between(1, 4);
    a.head_dim = 2 * between(1, 36);
    a.norm = static_cast<qk_norm>(between(0, 2));
    a.window = flip() ? between(1, 30) : 0;
    if (flip()) a.global_layers = every_layer(between(1, 3), between(0, 2));
    experts_spec& e = s.experts;
    e.stored = between(1, between(0, 5) == 0 ? 512 : 24);
    e.active = between(1, e.stored < 8 ? e.stored : 8);
    e.hidden = between(1, 80);
    e.shared_hidden = flip() ? between(1, 80) : 0;
    e.balance_bias = flip();
    s.tied_head = flip();
    if (between(0, 2) > 0) loop(s, 3);
    return s;
  }

  /// A plan that visits of the span of `s` can follow; every second one is plain but for its coefficient.
  [[nodiscard]] visit_plan plan_for(const spec& s) {
    visit_plan p{.residual = {between(1, 4), between(1, 16)}, .learned = flip()};
    if (flip()) return p;
    p.compression = between(1, s.context < 4 ? s.context : 4);
    p.encoder = static_cast<encoder_kind>(between(0, 2));
    p.writeback = static_cast<writeback_kind>(between(0, 3));
    p.position = static_cast<latent_position>(between(0, 1));
    p.own_attention = flip();
    if (s.loop.first + s.loop.count > s.dense_layers) {
      p.active = flip() ? between(1, s.experts.stored) : 0;
      p.expert_hidden = share_of(s.experts.hidden);
    }
    p.stream = share_of(s.width);
    return p;
  }

  /// A number in [low, high], equally likely up to the rounding of a remainder.
  [[nodiscard]] int between(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  [[nodiscard]] bool flip() { return random_() % 2 == 0; }

 private:
  /// Loops a part of `s`, by at most so many plans.
  void loop(spec& s, int most_plans) {
    s.loop.first = between(0, s.layers - 1);
    s.loop.count = between(1, s.layers - s.loop.first);
    const int plans = between(1, most_plans);
    for (int i = 0; i < plans; ++i) s.loop.visits = s.loop.visits.then(plan_for(s), between(1, 2));
  }

  /// A share that leaves a whole part of `size`: a half or thirds where they do, any number of units now and then.
  [[nodiscard]] ratio share_of(int size) {
    switch (between(0, 3)) {
      case 0:
        return size % 2 == 0 ? ratio{1, 2} : ratio{};
      case 1:
        return size % 3 == 0 ? ratio{between(1, 2), 3} : ratio{};
      case 2:
        return {between(1, size), size};
      default:
        return {};
    }
  }

  std::mt19937_64 random_;
};

}  // namespace smelt::testing
