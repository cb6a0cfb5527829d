// What are the fields of a spec called? One list a struct, for everything that reads or writes specs as text.
#pragma once

#include <array>
#include <concepts>
#include <smelt/spec/spec.hpp>
#include <type_traits>

namespace smelt {

namespace detail {

template <class T, class Plain>
concept ConstOrNot = std::same_as<std::remove_const_t<T>, Plain>;

}  // namespace detail

/// An integer with one value that is written as a word (`middle`, `half`).
template <detail::ConstOrNot<int> Int>
struct word_or_int {
  Int& value;
  int meaning;
  const char* word;
};

// One list of fields a struct serves whoever reads or writes specs. The structured binding fails to compile when a
// struct gains a field that its list lacks.

/// Calls f(name, field) for every field of `s`, in the order of the declaration.
template <detail::ConstOrNot<latent_attention_spec> S, class F>
void each_field(S& s, F&& f) {
  auto& [kv_rank, q_rank, nope_dim, rope_dim, value_dim] = s;
  f("kv_rank", kv_rank);
  f("q_rank", q_rank);
  f("nope_dim", nope_dim);
  f("rope_dim", rope_dim);
  f("value_dim", value_dim);
}

template <detail::ConstOrNot<attention_spec> S, class F>
void each_field(S& s, F&& f) {
  auto& [heads, kv_heads, head_dim, qkv_bias, o_bias, norm, sinks, window, global_layers, rotary_base, latent] = s;
  f("heads", heads);
  f("kv_heads", kv_heads);
  f("head_dim", head_dim);
  f("qkv_bias", qkv_bias);
  f("o_bias", o_bias);
  f("norm", norm);
  f("sinks", sinks);
  f("window", window);
  f("global_layers", global_layers);
  f("rotary_base", rotary_base);
  f("latent", latent);
}

template <detail::ConstOrNot<experts_spec> S, class F>
void each_field(S& s, F&& f) {
  auto& [stored, active, hidden, shared_hidden, shared_gate, bias, router_bias, balance_bias, score, renormalise] = s;
  f("stored", stored);
  f("active", active);
  f("hidden", hidden);
  f("shared_hidden", shared_hidden);
  f("shared_gate", shared_gate);
  f("bias", bias);
  f("router_bias", router_bias);
  f("balance_bias", balance_bias);
  f("score", score);
  f("renormalise", renormalise);
}

template <detail::ConstOrNot<visit_plan> S, class F>
void each_field(S& s, F&& f) {
  auto& [residual, learned, compression, encoder, writeback, position, own_attention, active, expert_hidden, stream] =
      s;
  f("residual", residual);
  f("learned", learned);
  f("compression", compression);
  f("encoder", encoder);
  f("writeback", writeback);
  f("position", position);
  f("own_attention", own_attention);
  f("active", active);
  f("expert_hidden", expert_hidden);
  f("stream", stream);
}

template <detail::ConstOrNot<loop_spec> S, class F>
void each_field(S& s, F&& f) {
  auto& [first, count, visits] = s;
  using int_type = std::remove_reference_t<decltype((s.first))>;
  f("first", word_or_int<int_type>{first, loop_spec::middle, "middle"});
  f("count", word_or_int<int_type>{count, loop_spec::half, "half"});
  f("visits", visits);
}

template <detail::ConstOrNot<spec> S, class F>
void each_field(S& s, F&& f) {
  auto& [vocab, padded_vocab, context, width, layers, dense_layers, dense_hidden, dense_bias, ffn, positions, attention,
         experts, norms_per_layer, norm_bias, norm_eps, tied_head, head_bias, loop, exit_gate] = s;
  f("vocab", vocab);
  f("padded_vocab", padded_vocab);
  f("context", context);
  f("width", width);
  f("layers", layers);
  f("dense_layers", dense_layers);
  f("dense_hidden", dense_hidden);
  f("dense_bias", dense_bias);
  f("ffn", ffn);
  f("positions", positions);
  f("attention", attention);
  f("experts", experts);
  f("norms_per_layer", norms_per_layer);
  f("norm_bias", norm_bias);
  f("norm_eps", norm_eps);
  f("tied_head", tied_head);
  f("head_bias", head_bias);
  f("loop", loop);
  f("exit_gate", exit_gate);
}

/// A struct of the spec that has a list of fields.
template <class T>
concept FieldsOfSpec = requires(T& t) { each_field(t, [](const char*, auto&&) {}); };

/// A value of an enumeration and its name.
template <class Enum>
struct enum_name {
  Enum value;
  const char* name;
};

/// The names of an enumeration of the spec.
template <class Enum>
inline constexpr std::array<enum_name<Enum>, 0> names_of{};
template <>
inline constexpr std::array<enum_name<qk_norm>, 3> names_of<qk_norm>{
    {{qk_norm::none, "none"}, {qk_norm::per_head, "per_head"}, {qk_norm::full_width, "full_width"}}};
template <>
inline constexpr std::array<enum_name<position_kind>, 2> names_of<position_kind>{
    {{position_kind::rotary, "rotary"}, {position_kind::learned, "learned"}}};
template <>
inline constexpr std::array<enum_name<ffn_kind>, 2> names_of<ffn_kind>{
    {{ffn_kind::swiglu, "swiglu"}, {ffn_kind::gelu, "gelu"}}};
template <>
inline constexpr std::array<enum_name<score_function>, 2> names_of<score_function>{
    {{score_function::softmax, "softmax"}, {score_function::sigmoid, "sigmoid"}}};

template <>
inline constexpr std::array<enum_name<encoder_kind>, 3> names_of<encoder_kind>{
    {{encoder_kind::mean, "mean"}, {encoder_kind::conv, "conv"}, {encoder_kind::softmax, "softmax"}}};
template <>
inline constexpr std::array<enum_name<writeback_kind>, 4> names_of<writeback_kind>{
    {{writeback_kind::direct, "direct"},
     {writeback_kind::scaled, "scaled"},
     {writeback_kind::scalar, "scalar"},
     {writeback_kind::normalised, "normalised"}}};
template <>
inline constexpr std::array<enum_name<latent_position>, 2> names_of<latent_position>{
    {{latent_position::last_token, "last_token"}, {latent_position::chunk, "chunk"}}};

}  // namespace smelt
