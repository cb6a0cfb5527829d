// What should a model compute? The forward pass token by token from the formulas, sharing no code with the library's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <smelt/model/tensor_names.hpp>
#include <smelt/model/token_batch.hpp>
#include <smelt/model/weights.hpp>
#include <string>
#include <vector>

namespace smelt_test {

using namespace smelt;

/// A model whose weights are looked up by the names of its file, so that the names are checked by their roles as well.
class written_out_model {
 public:
  using row = std::vector<double>;

  struct router_loss {
    int layer = 0;
    int visit = 0;
    double balance = 0;
    double z = 0;
  };

  written_out_model(const spec& s, const weight_buffer<double>& w) : s_(s) {
    for (const named_tensor& t : named_tensors(w.layout(), s)) {
      const auto part = w.all().subspan(static_cast<std::size_t>(t.offset), static_cast<std::size_t>(t.size));
      tensors_[t.name] = row(part.begin(), part.end());
    }
  }

  std::vector<double> token_losses;      ///< nats; 0 where no target counts
  std::vector<row> hidden;               ///< behind the final norm
  std::vector<router_loss> evaluations;  ///< in execution order

  void run(const token_batch& batch) {
    batch_ = batch;
    token_losses.clear();
    hidden.clear();
    evaluations.clear();
    std::vector<row> x;
    const row& table = tensors_.at("model.embed_tokens.weight");
    for (const std::int32_t id : batch.inputs) x.push_back(part(table, id, s_.width));

    const int count = s_.loop.count == loop_spec::half ? s_.layers / 2 : s_.loop.count;
    const int first = s_.loop.first == loop_spec::middle ? (s_.layers - count) / 2 : s_.loop.first;
    const int visits = count == 0 ? 0 : s_.loop.visits.count;
    int layer = 0;
    for (; layer < (count == 0 ? s_.layers : first); ++layer) run_layer(x, layer, 0, 1.0);
    for (int visit = 0; visit < visits; ++visit) {
      const ratio r = s_.loop.visits[visit].residual;
      for (layer = first; layer < first + count; ++layer) run_layer(x, layer, visit, double(r.num) / double(r.den));
    }
    for (; layer < s_.layers; ++layer) run_layer(x, layer, 0, 1.0);

    const row& head = tensors_.at(s_.tied_head ? "model.embed_tokens.weight" : "lm_head.weight");
    for (std::size_t t = 0; t < x.size(); ++t) {
      hidden.push_back(normed(x[t], tensors_.at("model.norm.weight")));
      row logits;
      for (int v = 0; v < s_.vocab; ++v) logits.push_back(dot(part(head, v, s_.width), hidden[t]));
      const std::int32_t target = batch.targets[t];
      token_losses.push_back(target < 0 ? 0.0 : log_of_sum(logits) - logits[static_cast<std::size_t>(target)]);
    }
  }

 private:
  [[nodiscard]] static row part(const row& all, std::int64_t index, std::int64_t size) {
    return {all.begin() + index * size, all.begin() + (index + 1) * size};
  }
  [[nodiscard]] static double dot(const row& a, const row& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  }
  [[nodiscard]] static double log_of_sum(const row& logits) {
    double sum = 0;
    for (const double l : logits) sum += std::exp(l);
    return std::log(sum);
  }
  [[nodiscard]] static row times(const row& w, const row& x) {
    row y;
    for (std::size_t at = 0; at < w.size(); at += x.size())
      y.push_back(std::inner_product(x.begin(), x.end(), w.begin() + static_cast<std::ptrdiff_t>(at), 0.0));
    return y;
  }
  static void add(row& to, double scale, const row& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += scale * from[i];
  }
  [[nodiscard]] row normed(const row& x, const row& gain) const {
    const double rms = std::sqrt(dot(x, x) / double(x.size()) + s_.norm_eps);
    row y;
    for (std::size_t i = 0; i < x.size(); ++i) y.push_back(x[i] / rms * gain[i]);
    return y;
  }

  [[nodiscard]] const row& weight_of(int layer, const std::string& name) const {
    return tensors_.at("model.layers." + std::to_string(layer) + "." + name + ".weight");
  }

  /// down(silu(gate x) * up x) with the weights under `prefix`.
  [[nodiscard]] row swiglu(int layer, const std::string& prefix, const row& x) const {
    row h = times(weight_of(layer, prefix + "gate_proj"), x);
    const row up = times(weight_of(layer, prefix + "up_proj"), x);
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * up[i];
    return times(weight_of(layer, prefix + "down_proj"), h);
  }

  /// The heads of a projection, normed and turned to their position as the spec asks.
  [[nodiscard]] std::vector<row> heads_of(int layer, const char* projection, const char* norm, const row& x,
                                          std::int64_t position) const {
    const int d = s_.attention.head_dim;
    row all = times(weight_of(layer, std::string("self_attn.") + projection), x);
    if (s_.attention.norm == qk_norm::full_width) all = normed(all, weight_of(layer, std::string("self_attn.") + norm));
    std::vector<row> heads;
    for (std::int64_t h = 0; h < static_cast<std::int64_t>(all.size()) / d; ++h) {
      row head = part(all, h, d);
      if (s_.attention.norm == qk_norm::per_head)
        head = normed(head, weight_of(layer, std::string("self_attn.") + norm));
      for (int i = 0; i < d / 2; ++i) {
        const double angle = double(position) / std::pow(double(s_.attention.rotary_base), 2.0 * i / d);
        double& low = head[static_cast<std::size_t>(i)];
        double& high = head[static_cast<std::size_t>(i + d / 2)];
        const double turned = low * std::cos(angle) - high * std::sin(angle);
        high = low * std::sin(angle) + high * std::cos(angle);
        low = turned;
      }
      heads.push_back(head);
    }
    return heads;
  }

  void attend(std::vector<row>& x, int layer, double coefficient) const {
    const int d = s_.attention.head_dim;
    const int group = s_.attention.heads / s_.attention.kv_heads;
    std::vector<std::vector<row>> queries, keys;
    std::vector<row> values;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const auto position = static_cast<std::int64_t>(t) % batch_.length;
      const row in = normed(x[t], weight_of(layer, "input_layernorm"));
      queries.push_back(heads_of(layer, "q_proj", "q_norm", in, position));
      keys.push_back(heads_of(layer, "k_proj", "k_norm", in, position));
      values.push_back(times(weight_of(layer, "self_attn.v_proj"), in));
    }
    const bool windowed = s_.attention.window > 0 && !s_.attention.global_layers[layer];
    for (std::size_t t = 0; t < x.size(); ++t) {
      const auto position = static_cast<std::int64_t>(t) % batch_.length;
      row read;
      for (int h = 0; h < s_.attention.heads; ++h) {
        row out(static_cast<std::size_t>(d));
        double sum = 0;
        for (std::int64_t j = 0; j <= position; ++j) {
          if (j < batch_.first[t] || (windowed && position - j >= s_.attention.window)) continue;
          const std::size_t key = t - static_cast<std::size_t>(position - j);
          const auto kv = static_cast<std::size_t>(h / group);
          const double share =
              std::exp(dot(queries[t][static_cast<std::size_t>(h)], keys[key][kv]) / std::sqrt(double(d)));
          sum += share;
          add(out, share, part(values[key], h / group, d));
        }
        for (const double o : out) read.push_back(o / sum);
      }
      add(x[t], coefficient, times(weight_of(layer, "self_attn.o_proj"), read));
    }
  }

  void think(std::vector<row>& x, int layer, int visit, double coefficient) {
    const auto stored = static_cast<std::size_t>(s_.experts.stored);
    row selected(stored), probability(stored);
    double squares = 0;
    for (row& token : x) {
      const row in = normed(token, weight_of(layer, "post_attention_layernorm"));
      if (layer < s_.dense_layers) {
        add(token, coefficient, swiglu(layer, "mlp.", in));
        continue;
      }
      const row logits = times(weight_of(layer, "mlp.gate"), in);
      const double lse = log_of_sum(logits);
      row scores;
      for (const double l : logits)
        scores.push_back(s_.experts.score == score_function::softmax ? std::exp(l - lse) : 1 / (1 + std::exp(-l)));
      row ranked = scores;
      if (s_.experts.balance_bias)
        add(ranked, 1, tensors_.at("model.layers." + std::to_string(layer) + ".mlp.gate.e_score_correction_bias"));
      std::vector<std::size_t> order(stored);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return ranked[a] > ranked[b] || (ranked[a] == ranked[b] && a < b);
      });
      order.resize(static_cast<std::size_t>(s_.experts.active));

      double chosen = 0;
      for (const std::size_t e : order) chosen += scores[e];
      for (const std::size_t e : order) {
        const double share = s_.experts.renormalise ? scores[e] / chosen : scores[e];
        add(token, coefficient * share, swiglu(layer, "mlp.experts." + std::to_string(e) + ".", in));
        selected[e] += 1;
      }
      if (s_.experts.shared_hidden > 0) add(token, coefficient, swiglu(layer, "mlp.shared_expert.", in));

      const double all = std::accumulate(scores.begin(), scores.end(), 0.0);
      add(probability, 1 / all, scores);
      squares += lse * lse;
    }
    if (layer < s_.dense_layers) return;
    const auto tokens = double(x.size());
    evaluations.push_back({layer, visit,
                           double(stored) * dot(selected, probability) / (tokens * s_.experts.active) / tokens,
                           squares / tokens});
  }

  void run_layer(std::vector<row>& x, int layer, int visit, double coefficient) {
    attend(x, layer, coefficient);
    think(x, layer, visit, coefficient);
  }

  spec s_;
  token_batch batch_;
  std::map<std::string, row> tensors_;
};

}  // namespace smelt_test
