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
    in_ = {};
    int layer = 0;
    for (; layer < (count == 0 ? s_.layers : first); ++layer) run_layer(x, layer);
    for (int visit = 0; visit < visits; ++visit) run_visit(x, visit, first, count);
    in_ = {};
    for (; count > 0 && layer + count < s_.layers; ++layer) run_layer(x, layer + count);

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

  /// What the layers of a visit, or those outside the loop, run by.
  struct surroundings {
    visit_plan plan{};
    int visit = -1;
    double coefficient = 1;
  };
  /// A row's place: its sequence, its position for rotation, and the first row of the batch that it sees.
  struct place {
    std::size_t sequence = 0;
    double position = 0;
    std::size_t first = 0;
  };

  [[nodiscard]] row weight_of(int layer, const std::string& name) const {
    const std::string own = "model.visits." + std::to_string(in_.visit) + ".layers." + std::to_string(layer) + ".";
    const auto found = tensors_.find(own + name + ".weight");
    row w = found != tensors_.end() ? found->second
                                    : tensors_.at("model.layers." + std::to_string(layer) + "." + name + ".weight");
    const auto& r = in_.plan.stream;
    const std::size_t width = static_cast<std::size_t>(s_.width);
    const std::size_t narrow = width * std::size_t(r.num) / std::size_t(r.den);
    const auto leading_columns = [&](std::size_t cols, std::size_t kept) {
      row part;
      for (std::size_t at = 0; at < w.size(); at += cols)
        part.insert(part.end(), w.begin() + std::ptrdiff_t(at), w.begin() + std::ptrdiff_t(at + kept));
      w = part;
    };
    const auto ends = [&](const char* end) { return name.ends_with(end); };
    const std::size_t cols = w.size() / width;
    const bool routed = name.find("experts.") != std::string::npos;
    const auto units = static_cast<std::size_t>(s_.experts.hidden);
    const std::size_t kept = units * std::size_t(in_.plan.expert_hidden.num) / std::size_t(in_.plan.expert_hidden.den);
    if (ends("layernorm")) {
      w.resize(narrow);
    } else if (ends("o_proj") || ends("down_proj")) {
      w.resize(narrow * cols);
      if (routed) leading_columns(units, kept);
    } else if (!ends("q_norm") && !ends("k_norm")) {
      if (routed) w.resize(kept * width);
      leading_columns(width, narrow);
    }
    return w;
  }

  [[nodiscard]] const row& of_visit(const std::string& name) const {
    return tensors_.at("model.visits." + std::to_string(in_.visit) + "." + name);
  }

  /// The span, on what the visit's plan makes of the streams.
  void run_visit(std::vector<row>& x, int visit, int first, int count) {
    in_ = {.plan = s_.loop.visits[visit], .visit = visit};
    const visit_plan& p = in_.plan;
    in_.coefficient = p.learned ? of_visit("residual_coefficient")[0] : double(p.residual.num) / double(p.residual.den);
    const auto run = [&](std::vector<row>& rows) {
      for (int layer = first; layer < first + count; ++layer) run_layer(rows, layer);
    };
    const bool narrow = p.stream.num != p.stream.den;
    if (p.compression == 1 && !narrow) {
      run(x);
      return;
    }
    const auto c = static_cast<std::size_t>(p.compression);
    const auto length = static_cast<std::size_t>(batch_.length);
    const std::size_t latents = length / c;
    std::vector<row> z;
    const auto begins = [&](std::size_t t) { return t / length * length + std::size_t(batch_.first[t]); };
    for (std::size_t sequence = 0; sequence < x.size() / length; ++sequence) {
      for (std::size_t j = 0; j < latents; ++j) {
        const std::size_t last = sequence * length + c * j + c - 1;
        std::vector<std::size_t> members;
        for (std::size_t t = last + 1 - c; t <= last; ++t)
          if (t >= begins(last)) members.push_back(t);
        row latent(x[0].size());
        double total = 0;
        for (const std::size_t t : members) {
          const std::size_t i = t + c - 1 - last;
          if (p.compression == 1 || p.encoder == encoder_kind::mean) {
            add(latent, 1.0 / double(members.size()), x[t]);
          } else if (p.encoder == encoder_kind::conv) {
            for (std::size_t h = 0; h < latent.size(); ++h)
              latent[h] += of_visit("encoder.weight")[i * latent.size() + h] * x[t][h];
          } else {
            const double score = std::exp(dot(of_visit("encoder.weight"), x[t]));
            total += score;
            add(latent, score, x[t]);
          }
        }
        if (p.compression > 1 && p.encoder == encoder_kind::softmax)
          for (double& value : latent) value /= total;
        z.push_back(latent);
      }
    }
    std::vector<row> u = z;
    if (narrow)
      for (row& r : u) r = times(of_visit("down_proj.weight"), r);
    std::vector<row> before = u;
    if (!u.empty()) run(u);
    for (std::size_t i = 0; i < u.size(); ++i) {
      add(u[i], -1, before[i]);
      if (narrow) u[i] = times(of_visit("up_proj.weight"), u[i]);
    }
    for (std::size_t sequence = 0; sequence < x.size() / length; ++sequence) {
      for (std::size_t j = 0; j < latents; ++j) {
        const std::size_t last = sequence * length + c * j + c - 1;
        for (std::size_t i = 0; i < c && last + i < (sequence + 1) * length; ++i) {
          if (begins(last + i) > last) continue;
          const row& d = u[sequence * latents + j];
          double mean_square = 0;
          const auto coefficient = [&](std::size_t h) {
            if (p.compression == 1 || p.writeback == writeback_kind::direct) return 1.0;
            const row& w = of_visit("writeback.weight");
            return p.writeback == writeback_kind::scalar ? w[i] : w[i * d.size() + h];
          };
          for (std::size_t h = 0; h < d.size(); ++h) mean_square += coefficient(h) * coefficient(h) / double(d.size());
          const double by = p.compression > 1 && p.writeback == writeback_kind::normalised ? std::sqrt(mean_square) : 1;
          for (std::size_t h = 0; h < d.size(); ++h) x[last + i][h] += coefficient(h) / by * d[h];
        }
      }
    }
  }

  /// Where row `i` of the visit stands.
  [[nodiscard]] place place_of(std::size_t i) const {
    const auto c = static_cast<std::size_t>(in_.plan.compression);
    const auto length = static_cast<std::size_t>(batch_.length);
    const std::size_t rows = length / c;
    const std::size_t sequence = i / rows, number = i % rows, last = number * c + c - 1;
    const auto seen = static_cast<std::size_t>(batch_.first[sequence * length + last]);
    // The first row whose last token is seen.
    std::size_t first = 0;
    while (first * c + c - 1 < seen) ++first;
    return {sequence, double(c > 1 && in_.plan.position == latent_position::chunk ? number : last),
            sequence * rows + first};
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
                                          double position) const {
    const int d = s_.attention.head_dim;
    row all = times(weight_of(layer, std::string("self_attn.") + projection), x);
    if (s_.attention.norm == qk_norm::full_width) all = normed(all, weight_of(layer, std::string("self_attn.") + norm));
    std::vector<row> heads;
    for (std::int64_t h = 0; h < static_cast<std::int64_t>(all.size()) / d; ++h) {
      row head = part(all, h, d);
      if (s_.attention.norm == qk_norm::per_head)
        head = normed(head, weight_of(layer, std::string("self_attn.") + norm));
      for (int i = 0; i < d / 2; ++i) {
        const double angle = position / std::pow(double(s_.attention.rotary_base), 2.0 * i / d);
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

  void attend(std::vector<row>& x, int layer) const {
    const int d = s_.attention.head_dim;
    const int group = s_.attention.heads / s_.attention.kv_heads;
    std::vector<std::vector<row>> queries, keys;
    std::vector<row> values;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const row in = normed(x[t], weight_of(layer, "input_layernorm"));
      queries.push_back(heads_of(layer, "q_proj", "q_norm", in, place_of(t).position));
      keys.push_back(heads_of(layer, "k_proj", "k_norm", in, place_of(t).position));
      values.push_back(times(weight_of(layer, "self_attn.v_proj"), in));
    }
    const bool windowed = s_.attention.window > 0 && !s_.attention.global_layers[layer];
    for (std::size_t t = 0; t < x.size(); ++t) {
      row read;
      for (int h = 0; h < s_.attention.heads; ++h) {
        row out(static_cast<std::size_t>(d));
        double sum = 0;
        for (std::size_t key = place_of(t).first; key <= t; ++key) {
          if (windowed && t - key >= std::size_t(s_.attention.window)) continue;
          const auto kv = static_cast<std::size_t>(h / group);
          const double share =
              std::exp(dot(queries[t][static_cast<std::size_t>(h)], keys[key][kv]) / std::sqrt(double(d)));
          sum += share;
          add(out, share, part(values[key], h / group, d));
        }
        for (const double o : out) read.push_back(o / sum);
      }
      add(x[t], in_.coefficient, times(weight_of(layer, "self_attn.o_proj"), read));
    }
  }

  void think(std::vector<row>& x, int layer) {
    const double coefficient = in_.coefficient;
    const int active = in_.plan.active > 0 ? in_.plan.active : s_.experts.active;
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
      order.resize(static_cast<std::size_t>(active));

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
    evaluations.push_back({layer, (std::max)(in_.visit, 0),
                           double(stored) * dot(selected, probability) / (tokens * active) / tokens, squares / tokens});
  }

  void run_layer(std::vector<row>& x, int layer) {
    attend(x, layer);
    think(x, layer);
  }

  spec s_;
  surroundings in_;
  token_batch batch_;
  std::map<std::string, row> tensors_;
};

}  // namespace smelt_test
