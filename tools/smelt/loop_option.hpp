// How is a loop given on the command line? As SPAN:VISITS, such as middle:2, 3+6:2 or middle:c2,own+1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/core/nearest_name.hpp>
#include <smelt/io/spec_fields.hpp>
#include <smelt/spec/layer_set.hpp>
#include <smelt/spec/visit.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "number.hpp"

namespace smelt::tool {

/// What --loop takes, for help texts.
inline constexpr const char* loop_help =
    "SPAN:VISITS. SPAN: middle (the middle half), middle+6 (the middle 6 layers), 3+6 (6 from layer 3 on). VISITS: a "
    "number, each write scaled by 1 over it; or plans joined by +, each of words joined by commas: 1/4 (coefficient, 1 "
    "unless given), learned, c2 (2 tokens a latent), mean|conv|softmax, scaled|direct|scalar|normalised, "
    "last_token|chunk, own (attention), k4 (active experts), f1/2 (hidden units of experts), h1/2 (residual stream), "
    "x3 (three visits by this plan)";

/// Examples of --loop for the end of a help text, with the command before them.
[[nodiscard]] inline std::string loop_examples(const std::string& command) {
  const auto line = [&](const char* loop, const char* meaning) {
    std::string text = "  " + command + " --loop " + loop;
    text.resize((std::max)(text.size() + 2, std::size_t{56}), ' ');
    return text + meaning + "\n";
  };
  return line("middle:2", "SMELT: twice, each write scaled by 1/2") + line("middle:1,x2", "twice, not scaled") +
         line("middle:1/4+1", "twice, the first visit scaled by 1/4") +
         line("middle:learned,x3", "three times, learned coefficients") +
         line("middle:c2,own+1", "LatentLoop: the first visit on pairs of tokens") +
         line("middle:c2,conv,direct+1", "the same, other encoder and writeback") +
         line("middle:h1/2+1", "the first visit on half of the stream") +
         line("2+4:k2,f1/2,1/2+1", "the first visit on fewer and narrower experts");
}

namespace detail {

/// A plan as it is read word by word.
class plan_words {
 public:
  /// Reads `word` into the plan. Returns what is wrong with it, empty when nothing is.
  [[nodiscard]] std::string read(std::string_view word) {
    const std::string quoted = "\"" + std::string(word) + "\"";
    const auto once = [&](bool& given, const char* what) {
      const bool twice = given;
      given = true;
      return twice ? std::string(what) + " is given twice" : std::string();
    };
    if (word == "learned") {
      plan_.learned = true;
      return once(learned_, "learned");
    }
    if (word == "own") {
      plan_.own_attention = true;
      return once(own_, "own");
    }
    if (take(word, plan_.encoder)) return once(encoder_, "the encoder");
    if (take(word, plan_.writeback)) return once(writeback_, "the writeback");
    if (take(word, plan_.position)) return once(position_, "the position");
    if (const auto residual = ratio_of(word)) {
      plan_.residual = *residual;
      return once(residual_, "the coefficient");
    }
    const std::string_view value = word.empty() ? word : word.substr(1);
    const auto count = [&](int& to, bool& given, std::int64_t most, const char* what) {
      const auto n = read_count(value);
      if (!n || *n < 1 || *n > most)
        return std::string(what) + " must be from 1 to " + std::to_string(most) + ", found " + quoted;
      to = static_cast<int>(*n);
      return once(given, what);
    };
    const auto share = [&](ratio& to, bool& given, const char* what) {
      const auto part = ratio_of(value);
      if (!part) return std::string(what) + " must be a ratio such as 1/2, found " + quoted;
      to = *part;
      return once(given, what);
    };
    constexpr std::int64_t any = 1'000'000'000;
    switch (word.empty() ? '\0' : word[0]) {
      case 'c':
        return count(plan_.compression, compression_, any, "tokens a latent");
      case 'k':
        return count(plan_.active, active_, any, "active experts");
      case 'x':
        return count(times_, times_given_, max_visits, "visits by one plan");
      case 'f':
        return share(plan_.expert_hidden, hidden_, "the share of hidden units");
      case 'h':
        return share(plan_.stream, stream_, "the share of the stream");
      default:
        return quoted + " is no word of a plan; the nearest is \"" +
               nearest_names(std::string(word), words(), 1).front() + "\"";
    }
  }

  /// What the words that were read leave open, empty when nothing is.
  [[nodiscard]] std::string missing() const {
    if (compression_ || !(encoder_ || writeback_ || position_)) return {};
    const char* what = encoder_ ? "an encoder" : writeback_ ? "a writeback" : "a position of latents";
    return std::string(what) + " is given, but no latents; add c2";
  }

  [[nodiscard]] const visit_plan& plan() const noexcept { return plan_; }
  [[nodiscard]] int times() const noexcept { return times_; }

 private:
  template <class Enum>
  [[nodiscard]] static bool take(std::string_view word, Enum& to) {
    for (const auto& [value, name] : names_of<Enum>)
      if (word == name) {
        to = value;
        return true;
      }
    return false;
  }
  [[nodiscard]] static std::vector<std::string> words() {
    std::vector<std::string> all{"learned", "own", "c2", "k4", "f1/2", "h1/2", "x2", "1/2"};
    for (const auto& [value, name] : names_of<encoder_kind>) all.emplace_back(name);
    for (const auto& [value, name] : names_of<writeback_kind>) all.emplace_back(name);
    for (const auto& [value, name] : names_of<latent_position>) all.emplace_back(name);
    return all;
  }
  /// N or N/M, N possibly negative.
  [[nodiscard]] static std::optional<ratio> ratio_of(std::string_view text) {
    const bool negative = text.substr(0, 1) == "-";
    if (negative) text.remove_prefix(1);
    const auto slash = text.find('/');
    constexpr std::int64_t most = 1'000'000'000;
    const auto part = [&](std::string_view digits) -> std::optional<int> {
      if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos || digits.size() > 10)
        return std::nullopt;
      const auto n = read_count(digits);
      return n && *n <= most ? std::optional(static_cast<int>(*n)) : std::nullopt;
    };
    const auto num = part(text.substr(0, slash));
    const auto den = slash == std::string_view::npos ? std::optional(1) : part(text.substr(slash + 1));
    if (!num || !den) return std::nullopt;
    return ratio{negative ? -*num : *num, *den};
  }

  visit_plan plan_{};
  int times_ = 1;
  bool learned_ = false, own_ = false, encoder_ = false, writeback_ = false, position_ = false, residual_ = false,
       compression_ = false, active_ = false, times_given_ = false, hidden_ = false, stream_ = false;
};

/// The pieces of `text` between `separator`s.
[[nodiscard]] inline std::vector<std::string_view> pieces_of(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (std::size_t begin = 0;;) {
    const auto end = text.find(separator, begin);
    pieces.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return pieces;
    begin = end + 1;
  }
}

}  // namespace detail

/// The loop of `text`. `middle:R` visits the middle half of the layers R times, `middle+M:R` the middle M layers,
/// `F+M:R` the M layers from layer F (0-based) on, every write scaled by 1/R; instead of R there may be plans, as
/// `loop_help` says. Throws errc::invalid_argument; what the rules of the spec refuse is left to them.
[[nodiscard]] inline loop_spec parse_loop(std::string_view text) {
  const auto refuse = [&](const std::string& why) -> error {
    return {errc::invalid_argument,
            "--loop must be SPAN:VISITS, such as middle:2, middle+6:2, 3+6:2 or middle:c2,own+1; found \"" +
                std::string(text) + "\" (" + why + ")"};
  };
  const auto number = [&](std::string_view digits, std::int64_t least, std::int64_t most, const std::string& what) {
    const auto value = read_count(digits);
    if (!value || *value < least || *value > most)
      throw refuse(what + " must be from " + std::to_string(least) + " to " + std::to_string(most));
    return static_cast<int>(*value);
  };
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) throw refuse("no colon before the visits");
  const std::string_view span = text.substr(0, colon);
  const auto plus = span.find('+');
  const std::string_view first = span.substr(0, plus);
  loop_spec loop;
  if (plus == std::string_view::npos && first != "middle") throw refuse("no number of layers");
  loop.first = first == "middle" ? loop_spec::middle : number(first, 0, max_layers - 1, "first layer");
  loop.count = plus == std::string_view::npos ? loop_spec::half
                                              : number(span.substr(plus + 1), 1, max_layers, "number of layers");
  const std::string_view list = text.substr(colon + 1);
  if (list.find_first_not_of("0123456789") == std::string_view::npos) {
    loop.visits = visits(number(list, 1, max_visits, "visits"));
    return loop;
  }
  for (const std::string_view plan : detail::pieces_of(list, '+')) {
    detail::plan_words words;
    for (const std::string_view word : detail::pieces_of(plan, ','))
      if (const std::string wrong = words.read(word); !wrong.empty()) throw refuse(wrong);
    if (const std::string wrong = words.missing(); !wrong.empty()) throw refuse(wrong);
    loop.visits = loop.visits.then(words.plan(), words.times());
  }
  if (loop.visits.count > max_visits) throw refuse("visits must be from 1 to " + std::to_string(max_visits));
  int held = 0;
  for (int i = 0; i < loop.visits.runs(); ++i) held += visit_list::length_of(loop.visits, i);
  if (held != loop.visits.count) throw refuse("at most " + std::to_string(max_plans) + " different plans in a row");
  return loop;
}

/// The visits as `parse_loop` reads them: `parse_loop("middle:" + plans_text(list)).visits == list`, except for what
/// plans without latents say of latents. Precondition: a valid spec has the list.
[[nodiscard]] inline std::string plans_text(const visit_list& list) {
  if (list == visits(list.count)) return std::to_string(list.count);
  std::string text;
  for (int i = 0; i < list.runs(); ++i) {
    const visit_plan& plan = visit_list::plan_of(list, i);
    const visit_plan plain{};
    const auto shown = [](const ratio& r) {
      return std::to_string(r.num) + (r.den == 1 ? "" : "/" + std::to_string(r.den));
    };
    const auto name_of_value = [](auto value) {
      for (const auto& [candidate, name] : names_of<decltype(value)>)
        if (candidate == value) return std::string(name);
      return std::string();
    };
    std::string words;
    const auto add = [&](bool present, const std::string& word) {
      if (present) words += (words.empty() ? "" : ",") + word;
    };
    add(!(plan.residual == plain.residual), shown(plan.residual));
    add(plan.learned, "learned");
    add(plan.compression != plain.compression, "c" + std::to_string(plan.compression));
    if (plan.compression > 1) {
      add(plan.encoder != plain.encoder, name_of_value(plan.encoder));
      add(plan.writeback != plain.writeback, name_of_value(plan.writeback));
      add(plan.position != plain.position, name_of_value(plan.position));
    }
    add(plan.own_attention, "own");
    add(plan.active != plain.active, "k" + std::to_string(plan.active));
    add(!(plan.expert_hidden == plain.expert_hidden), "f" + shown(plan.expert_hidden));
    add(!(plan.stream == plain.stream), "h" + shown(plan.stream));
    const int times = visit_list::length_of(list, i);
    // A number alone would be a number of visits.
    const bool number_alone = list.runs() == 1 && plan.residual.den == 1 && plan.residual.num >= 0 &&
                              words.find_first_not_of("0123456789") == std::string::npos;
    if (words.empty()) words = "1";
    add(times > 1 || number_alone, "x" + std::to_string(times));
    text += (text.empty() ? "" : "+") + words;
  }
  return text;
}

}  // namespace smelt::tool
