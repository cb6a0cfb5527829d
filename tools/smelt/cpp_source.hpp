// How is an architecture written as C++? As the designated initialisers of its spec, defaults left out.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <smelt/budget/conventions.hpp>
#include <smelt/budget/tolerance.hpp>
#include <smelt/core/error.hpp>
#include <smelt/io/spec_fields.hpp>
#include <smelt/spec/spec.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace smelt::tool {

namespace detail {

[[nodiscard]] inline std::string cpp(int value) {
  return std::to_string(value);
}
[[nodiscard]] inline std::string cpp(bool value) {
  return value ? "true" : "false";
}
[[nodiscard]] inline std::string cpp(double value) {
  // The shortest text that reads back as the same number.
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}
[[nodiscard]] inline std::string cpp(const ratio& value) {
  return "{" + std::to_string(value.num) + ", " + std::to_string(value.den) + "}";
}
[[nodiscard]] inline std::string cpp(const layer_set& value) {
  std::string text;
  for (const std::uint64_t word : {value.word0, value.word1, value.word2, value.word3}) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "0x%llxu", static_cast<unsigned long long>(word));
    text += (text.empty() ? "{" : ", ") + std::string(digits);
  }
  return text + "}";
}
[[nodiscard]] inline std::string cpp(word_or_int<const int> value) {
  return value.value == value.meaning ? "smelt::loop_spec::" + std::string(value.word) : std::to_string(value.value);
}

[[nodiscard]] constexpr const char* type_name(qk_norm) noexcept {
  return "qk_norm";
}
[[nodiscard]] constexpr const char* type_name(position_kind) noexcept {
  return "position_kind";
}
[[nodiscard]] constexpr const char* type_name(ffn_kind) noexcept {
  return "ffn_kind";
}
[[nodiscard]] constexpr const char* type_name(encoder_kind) noexcept {
  return "encoder_kind";
}
[[nodiscard]] constexpr const char* type_name(writeback_kind) noexcept {
  return "writeback_kind";
}
[[nodiscard]] constexpr const char* type_name(latent_position) noexcept {
  return "latent_position";
}
[[nodiscard]] constexpr const char* type_name(score_function) noexcept {
  return "score_function";
}
template <class Enum>
  requires std::is_enum_v<Enum>
[[nodiscard]] std::string cpp(Enum value) {
  std::string text = std::string("smelt::") + type_name(value) + "::";
  for (const auto& [candidate, name] : names_of<Enum>)
    if (candidate == value) text += name;
  return text;
}

template <FieldsOfSpec S>
[[nodiscard]] std::string cpp(const S& value);

[[nodiscard]] inline std::string cpp(const visit_list& value) {
  if (value == visits(value.count)) return "smelt::visits(" + std::to_string(value.count) + ")";
  std::string text = "smelt::visit_list{}";
  for (int i = 0; i < value.runs(); ++i) {
    const int times = visit_list::length_of(value, i);
    text += ".then(" + cpp(visit_list::plan_of(value, i)) + (times > 1 ? ", " + std::to_string(times) : "") + ")";
  }
  return text;
}

template <FieldsOfSpec S>
[[nodiscard]] std::string cpp(const S& value) {
  std::string text;
  const S defaults{};
  std::vector<std::string> plain;
  each_field(defaults, [&](const char*, const auto& field) { plain.push_back(cpp(field)); });
  std::size_t i = 0;
  each_field(value, [&](const char* name, const auto& field) {
    const std::string written = cpp(field);
    if (written != plain[i++]) text += (text.empty() ? "." : ", .") + std::string(name) + " = " + written;
  });
  return "{" + text + "}";
}

/// 40000 with digit separators, as C++ writes it.
[[nodiscard]] inline std::string separated(std::int64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t i = text.size(); i > 3;) text.insert(i -= 3, "'");
  return text;
}

}  // namespace detail

/// The expression smelt::spec{...} that is equal to `s`.
[[nodiscard]] inline std::string cpp_spec(const spec& s) {
  return "smelt::spec" + detail::cpp(s);
}

/// The expression smelt::within{...} that is equal to `w`.
[[nodiscard]] inline std::string cpp_within(const within& w) {
  const auto field = [](const char* name, percent p) {
    return std::string(".") + name + " = smelt::percent{" + detail::separated(p.ppm) + "}";
  };
  return "smelt::within{" + field("flops", w.flops) + ", " + field("params", w.params) + ", " +
         field("kv_cache", w.kv_cache) + "}";
}

/// The expression smelt::accounting{...} that is equal to `a`. Precondition: `a.flops` is a named convention and
/// `a.params` the default.
[[nodiscard]] inline std::string cpp_accounting(const accounting& a) {
  std::string convention = name_of(a.flops);
  for (char& c : convention)
    if (c == '-') c = '_';
  return "smelt::accounting{.flops = smelt::conventions::" + convention +
         ", .kv_bytes_per_element = " + std::to_string(a.kv_bytes_per_element) + "}";
}

/// Words that no type at namespace scope can be called: the keywords of C++20, and the namespaces in use.
inline constexpr std::string_view reserved_words[] = {"alignas",
                                                      "alignof",
                                                      "and",
                                                      "and_eq",
                                                      "asm",
                                                      "auto",
                                                      "bitand",
                                                      "bitor",
                                                      "bool",
                                                      "break",
                                                      "case",
                                                      "catch",
                                                      "char",
                                                      "char16_t",
                                                      "char32_t",
                                                      "char8_t",
                                                      "class",
                                                      "co_await",
                                                      "co_return",
                                                      "co_yield",
                                                      "compl",
                                                      "concept",
                                                      "const",
                                                      "const_cast",
                                                      "consteval",
                                                      "constexpr",
                                                      "constinit",
                                                      "continue",
                                                      "decltype",
                                                      "default",
                                                      "delete",
                                                      "do",
                                                      "double",
                                                      "dynamic_cast",
                                                      "else",
                                                      "enum",
                                                      "explicit",
                                                      "export",
                                                      "extern",
                                                      "false",
                                                      "float",
                                                      "for",
                                                      "friend",
                                                      "goto",
                                                      "if",
                                                      "inline",
                                                      "int",
                                                      "long",
                                                      "mutable",
                                                      "namespace",
                                                      "new",
                                                      "noexcept",
                                                      "not",
                                                      "not_eq",
                                                      "nullptr",
                                                      "operator",
                                                      "or",
                                                      "or_eq",
                                                      "private",
                                                      "protected",
                                                      "public",
                                                      "register",
                                                      "reinterpret_cast",
                                                      "requires",
                                                      "return",
                                                      "short",
                                                      "signed",
                                                      "sizeof",
                                                      "smelt",
                                                      "static",
                                                      "static_assert",
                                                      "static_cast",
                                                      "std",
                                                      "struct",
                                                      "switch",
                                                      "template",
                                                      "this",
                                                      "thread_local",
                                                      "throw",
                                                      "true",
                                                      "try",
                                                      "typedef",
                                                      "typeid",
                                                      "typename",
                                                      "union",
                                                      "unsigned",
                                                      "using",
                                                      "virtual",
                                                      "void",
                                                      "volatile",
                                                      "wchar_t",
                                                      "while",
                                                      "xor",
                                                      "xor_eq"};

/// Throws errc::invalid_argument when `name` cannot name a C++ type.
inline void require_identifier(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  bool fine = !name.empty() && letter(name[0]) && name[0] != '_' && name.find("__") == std::string::npos;
  for (const char c : name) fine = fine && (letter(c) || (c >= '0' && c <= '9'));
  if (!fine)
    throw error(errc::invalid_argument,
                "--header must be a C++ type's name: letters, digits and single underscores, a letter first; found \"" +
                    name + "\"");
  if (std::ranges::find(reserved_words, name) != std::end(reserved_words))
    throw error(errc::invalid_argument, "--header must be a C++ type's name; found \"" + name + "\", which is taken");
}

/// A header that compiles: the base, its partner, and the check that their budgets match.
[[nodiscard]] inline std::string cpp_header(const std::string& name, const std::string& made_by, const spec& base,
                                            const spec& partner, const within& tolerance, const accounting& by) {
  return "// Which architecture costs what " + name + "_base costs? Solved by `" + made_by +
         "`.\n#pragma once\n\n#include <smelt/budget/check.hpp>\n#include <smelt/spec/arch.hpp>\n\n" +
         "/// The base.\nstruct " + name + "_base : smelt::arch<" + cpp_spec(base) + "> {};\n\n" +
         "/// Its partner.\nstruct " + name + " : smelt::arch<" + cpp_spec(partner) + "> {};\n\n" +
         "static_assert(smelt::budgets_match<" + name + ", " + name + "_base, " + cpp_within(tolerance) + ", " +
         cpp_accounting(by) + ">::passed);\n";
}

}  // namespace smelt::tool
