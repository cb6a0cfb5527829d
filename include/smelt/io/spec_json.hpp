// How is an architecture written in a file? As JSON whose keys are the names of the C++ fields.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <smelt/core/error.hpp>
#include <smelt/core/nearest_name.hpp>
#include <smelt/io/sniff.hpp>
#include <smelt/io/spec_fields.hpp>
#include <smelt/spec/spec.hpp>
#include <smelt/spec/validate.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace smelt {

/// The longest spec file that is read, in bytes.
inline constexpr std::size_t max_spec_bytes = 1u << 20;

namespace detail::spec_json {

using json = nlohmann::json;

/// A value as it stands in the file, cut short for a message.
[[nodiscard]] inline std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

[[noreturn]] inline void wrong_type(const std::string& path, const json& found, std::string_view needed) {
  throw error(errc::invalid_spec, "spec: " + path + " must be " + std::string(needed) + "; found " + shown(found));
}

[[nodiscard]] inline std::string joined(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

/// Refuses the keys of `object` that are not `known`.
inline void check_keys(const json& object, const std::string& path, const std::vector<std::string>& known) {
  if (!object.is_object()) wrong_type(path.empty() ? "the document" : path, object, "an object {...}");
  for (const auto& item : object.items()) {
    bool found = false;
    for (const std::string& k : known) found = found || k == item.key();
    if (!found)
      throw error(errc::invalid_spec, "spec: unknown key \"" + joined(path, item.key()) + "\"; did you mean \"" +
                                          joined(path, nearest_names(item.key(), known, 1).front()) + "\"?");
  }
}

template <class S>
[[nodiscard]] std::vector<std::string> keys_of() {
  std::vector<std::string> keys;
  S s{};
  each_field(s, [&](const char* name, auto&&) { keys.emplace_back(name); });
  return keys;
}

inline void read(const json& from, const std::string& path, int& to) {
  if (!from.is_number_integer()) wrong_type(path, from, "an integer");
  // Both signs are compared as they are stored: an unsigned value beyond int64 must not wrap into range.
  constexpr auto least = (std::numeric_limits<int>::min)(), most = (std::numeric_limits<int>::max)();
  const bool fits = from.is_number_unsigned()
                        ? from.get<json::number_unsigned_t>() <= static_cast<json::number_unsigned_t>(most)
                        : from.get<json::number_integer_t>() >= least && from.get<json::number_integer_t>() <= most;
  if (!fits) wrong_type(path, from, "an integer of 32 bits");
  to = from.get<int>();
}

inline void read(const json& from, const std::string& path, bool& to) {
  if (!from.is_boolean()) wrong_type(path, from, "true or false");
  to = from.get<bool>();
}

inline void read(const json& from, const std::string& path, double& to) {
  if (!from.is_number()) wrong_type(path, from, "a number");
  to = from.get<double>();
}

template <class Enum>
  requires std::is_enum_v<Enum>
void read(const json& from, const std::string& path, Enum& to) {
  std::string choices;
  for (const auto& [value, name] : names_of<Enum>) {
    if (from.is_string() && from.get_ref<const std::string&>() == name) {
      to = value;
      return;
    }
    choices += (choices.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  }
  wrong_type(path, from, "one of " + choices);
}

inline void read(const json& from, const std::string& path, ratio& to) {
  if (!from.is_array() || from.size() != 2) wrong_type(path, from, "[numerator, denominator], such as [1, 2]");
  read(from[0], path + "[0]", to.num);
  read(from[1], path + "[1]", to.den);
}

inline void read(const json& from, const std::string& path, layer_set& to) {
  to = {};
  if (from.is_object()) {
    check_keys(from, path, {"every", "from"});
    int every = 1, first = 0;
    if (!from.contains("every")) wrong_type(path, from, "{\"every\": period, \"from\": first layer}");
    read(from["every"], path + ".every", every);
    if (from.contains("from")) read(from["from"], path + ".from", first);
    if (every < 1) wrong_type(path + ".every", from["every"], "at least 1");
    if (first < 0 || first >= max_layers) wrong_type(path + ".from", from["from"], "a layer from 0 to 255");
    to = every_layer(every, first);
    return;
  }
  if (!from.is_array()) wrong_type(path, from, "a list of layers or {\"every\": period, \"from\": first layer}");
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::string at = path + "[" + std::to_string(i) + "]";
    int layer = 0;
    read(from[i], at, layer);
    if (layer < 0 || layer >= max_layers) wrong_type(at, from[i], "a layer from 0 to 255");
    to = to.with(layer);
  }
}

inline void read(const json& from, const std::string& path, word_or_int<int> to) {
  if (from.is_string() && from.get_ref<const std::string&>() == to.word) {
    to.value = to.meaning;
    return;
  }
  int number = 0;
  if (from.is_number_integer()) read(from, path, number);
  if (!from.is_number_integer() || number < 0)
    wrong_type(path, from, "\"" + std::string(to.word) + "\" or an integer of at least 0");
  to.value = number;
}

template <FieldsOfSpec S>
void read(const json& from, const std::string& path, S& to);

inline void read(const json& from, const std::string& path, visit_list& to) {
  to = {};
  if (from.is_object()) {
    std::vector<std::string> known = keys_of<visit_plan>();
    known.emplace_back("repeat");
    check_keys(from, path, known);
    if (!from.contains("repeat")) wrong_type(path, from, "a list of visits or {\"repeat\": number of visits}");
    int repeat = 0;
    read(from["repeat"], path + ".repeat", repeat);
    visit_plan plan{.residual = {1, repeat < 1 ? 1 : repeat}};
    json of_plan = from;
    of_plan.erase("repeat");
    read(of_plan, path, plan);
    // More visits than the list holds keep their number, so that the rule about it can name the number.
    to = visits(repeat, plan);
    to.count = repeat;
    return;
  }
  if (!from.is_array()) wrong_type(path, from, "a list of visits or {\"repeat\": number of visits}");
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::string at = path + "[" + std::to_string(i) + "]";
    visit_plan plan;
    int times = 1;
    json of_plan = from[i];
    std::vector<std::string> known = keys_of<visit_plan>();
    known.emplace_back("times");
    check_keys(of_plan, at, known);
    if (of_plan.contains("times")) {
      read(of_plan["times"], at + ".times", times);
      if (times < 1 || times > max_visits)
        wrong_type(at + ".times", of_plan["times"], "from 1 to " + std::to_string(max_visits));
      of_plan.erase("times");
    }
    read(of_plan, at, plan);
    to = to.then(plan, times);
  }
}

template <FieldsOfSpec S>
void read(const json& from, const std::string& path, S& to) {
  check_keys(from, path, keys_of<S>());
  each_field(to, [&](const char* name, auto&& field) {
    if (const auto found = from.find(name); found != from.end()) read(*found, joined(path, name), field);
  });
}

using ordered = nlohmann::ordered_json;

inline void write(ordered& to, int value) {
  to = value;
}
inline void write(ordered& to, bool value) {
  to = value;
}
inline void write(ordered& to, double value) {
  to = value;
}

template <class Enum>
  requires std::is_enum_v<Enum>
void write(ordered& to, Enum value) {
  for (const auto& [candidate, name] : names_of<Enum>)
    if (candidate == value) to = name;
}

inline void write(ordered& to, const ratio& value) {
  to = ordered::array({value.num, value.den});
}

inline void write(ordered& to, const layer_set& value) {
  std::vector<int> layers;
  for (int i = 0; i < max_layers; ++i)
    if (value[i]) layers.push_back(i);
  // A periodic set reaches the last possible layer and would be a list of up to 256 numbers.
  if (layers.size() > 2 && value == every_layer(layers[1] - layers[0], layers[0]))
    to = ordered{{"every", layers[1] - layers[0]}, {"from", layers[0]}};
  else
    to = layers;
}

inline void write(ordered& to, word_or_int<const int> value) {
  if (value.value == value.meaning)
    to = value.word;
  else
    to = value.value;
}

template <FieldsOfSpec S>
void write(ordered& to, const S& value);

inline void write(ordered& to, const visit_list& value) {
  if (value.count > 0 && value == visits(value.count)) {
    to = ordered{{"repeat", value.count}};
    return;
  }
  to = ordered::array();
  for (int i = 0; i < value.runs(); ++i) {
    ordered plan;
    write(plan, visit_list::plan_of(value, i));
    if (const int times = visit_list::length_of(value, i); times > 1) plan["times"] = times;
    to.push_back(std::move(plan));
  }
}

template <FieldsOfSpec S>
void write(ordered& to, const S& value) {
  to = ordered::object();
  each_field(value, [&](const char* name, const auto& field) { write(to[name], field); });
}

/// The document of `text`; keys that stand twice in one object are refused, because one of them would be ignored.
[[nodiscard]] inline json parse(std::string_view text, const std::string& source) {
  std::vector<std::set<std::string>> open;
  std::string twice;
  const json::parser_callback_t watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second && twice.empty())
      twice = value.get<std::string>();
    return true;
  };
  const auto refuse = [&](const std::string& what) -> error {
    const std::string_view kind = likely_kind(std::as_bytes(std::span(text.data(), text.size())));
    return {errc::invalid_spec,
            source + ": a spec must be JSON; found " + (kind.empty() ? what : std::string(kind) + " (" + what + ")")};
  };
  // The parser would take a zero byte for the end of the text and ignore what follows.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos)
    throw refuse("a zero byte at offset " + std::to_string(zero));
  json document;
  try {
    document = json::parse(text, watch);
  } catch (const json::exception& e) {
    std::string what = e.what();
    if (const auto end = what.find("] "); what.starts_with('[') && end != std::string::npos) what.erase(0, end + 2);
    throw refuse(what);
  }
  if (!twice.empty())
    throw error(errc::invalid_spec, source + ": key \"" + twice + "\" stands twice in one object; keep one of them");
  return document;
}

}  // namespace detail::spec_json

/// The JSON of a spec, keys in the order of the C++ fields and every field written, so that a file keeps its meaning
/// if a default changes. Precondition: `s` is valid.
[[nodiscard]] inline nlohmann::ordered_json spec_to_json(const spec& s) {
  nlohmann::ordered_json document;
  detail::spec_json::write(document, s);
  return document;
}

/// The spec of a JSON document; absent fields have the C++ defaults. Throws errc::invalid_spec for an unknown key (with
/// the nearest known one), a value of the wrong type (with its path), or a spec that cannot exist (with its rule).
[[nodiscard]] inline spec spec_from_json(const nlohmann::json& document) {
  spec s;
  detail::spec_json::read(document, "", s);
  return validate(s);
}

/// As spec_from_json, of a text; errors begin with `source`.
[[nodiscard]] inline spec parse_spec(std::string_view text, const std::string& source) {
  const nlohmann::json document = detail::spec_json::parse(text, source);
  try {
    return spec_from_json(document);
  } catch (const error& e) {
    throw error(e.code(), source + ": " + e.what());
  }
}

/// The text of a small file, or of a pipe such as /dev/stdin. Throws errc::io when it cannot be read or is longer than
/// max_spec_bytes.
[[nodiscard]] inline std::string read_spec_text(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw error(errc::io, path.string() + ": a spec must be a JSON file; found a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw error(errc::io, path.string() + ": cannot be opened for reading");
  std::string text(max_spec_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw error(errc::io, path.string() + ": cannot be read");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > max_spec_bytes)
    throw error(errc::io, path.string() + ": a spec file must be at most " + std::to_string(max_spec_bytes) +
                              " bytes; found more");
  return text;
}

/// The spec of a JSON file. Errors as parse_spec and read_spec_text.
[[nodiscard]] inline spec read_spec(const std::filesystem::path& path) {
  return parse_spec(read_spec_text(path), path.string());
}

}  // namespace smelt
