// How do named tensors get into and out of .safetensors files, with every lie a file can tell found before it is used?
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/io/atomic_file.hpp>
#include <smelt/io/mapped_file.hpp>
#include <smelt/io/sniff.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace smelt::safetensors {

// The format is little-endian and tensors are used where they lie.
static_assert(std::endian::native == std::endian::little, "safetensors files are read in place on little-endian hosts");

/// The longest header the format allows, in bytes.
inline constexpr std::uint64_t max_header_bytes = 100'000'000;
/// The most dimensions a tensor may have here; models use at most 4.
inline constexpr std::size_t max_dimensions = 8;

/// Element types of the format that fill whole bytes.
enum class dtype { boolean, u8, i8, f8_e4m3, f8_e5m2, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64 };

namespace detail {

struct dtype_row {
  dtype type;
  std::string_view name;
  std::int64_t bytes;
};

// In the order of the enumerators, so that the value is the index.
inline constexpr dtype_row dtype_rows[] = {
    {dtype::boolean, "BOOL", 1},    {dtype::u8, "U8", 1},   {dtype::i8, "I8", 1},   {dtype::f8_e4m3, "F8_E4M3", 1},
    {dtype::f8_e5m2, "F8_E5M2", 1}, {dtype::u16, "U16", 2}, {dtype::i16, "I16", 2}, {dtype::f16, "F16", 2},
    {dtype::bf16, "BF16", 2},       {dtype::u32, "U32", 4}, {dtype::i32, "I32", 4}, {dtype::f32, "F32", 4},
    {dtype::u64, "U64", 8},         {dtype::i64, "I64", 8}, {dtype::f64, "F64", 8},
};

/// Text from a file, made safe and short enough for a message.
[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t most = 120;
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result = "'";
  for (const char c : text.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7F) {
      result += "\\x";
      result += digits[byte >> 4];
      result += digits[byte & 15];
    } else {
      result += c;
    }
  }
  return result + (text.size() > most ? "...' (" + std::to_string(text.size()) + " bytes)" : "'");
}

}  // namespace detail

/// The format's name of an element type ("F32").
[[nodiscard]] constexpr std::string_view name_of(dtype type) noexcept {
  return detail::dtype_rows[static_cast<std::size_t>(type)].name;
}

/// Bytes of one element.
[[nodiscard]] constexpr std::int64_t bytes_of(dtype type) noexcept {
  return detail::dtype_rows[static_cast<std::size_t>(type)].bytes;
}

/// The element type of that name in the format; nothing when it is unknown or packs several elements into a byte.
[[nodiscard]] constexpr std::optional<dtype> dtype_named(std::string_view name) noexcept {
  for (const auto& row : detail::dtype_rows) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

/// "[256, 64]".
[[nodiscard]] inline std::string to_string(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

/// The product of the dimensions (1 for a scalar, 0 when a dimension is 0); nothing when one is negative or the product
/// does not fit in 64 bits.
[[nodiscard]] constexpr std::optional<std::int64_t> elements_of(std::span<const std::int64_t> shape) noexcept {
  bool empty = false;
  for (const auto n : shape) {
    if (n < 0) return std::nullopt;
    empty = empty || n == 0;
  }
  if (empty) return 0;
  std::int64_t product = 1;
  for (const auto n : shape) {
    if (product > (std::numeric_limits<std::int64_t>::max)() / n) return std::nullopt;
    product *= n;
  }
  return product;
}

/// One tensor of a file.
struct entry {
  std::string name;
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;  // row-major
  std::int64_t elements = 0;        // product of the shape
  std::int64_t begin = 0;           // bytes, from the start of the data
  std::int64_t end = 0;             // bytes, one past the last
};

/// What the header of a file says, checked against the size of the file.
struct header {
  std::vector<entry> entries;                   // in the order of their data
  std::map<std::string, std::string> metadata;  // the "__metadata__" of the file
  std::int64_t data_begin = 0;                  // bytes, from the start of the file
};

namespace detail {

/// Builds entries while the JSON is read: nothing is kept that the format does not have, so memory stays within a
/// small multiple of the header's size whatever it contains, and repeated names are seen.
class header_builder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  explicit header_builder(std::string_view where) : where_(where) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw error(errc::corrupt, std::string(where_) + ": " + what);
  }

  bool null() { wrong("null"); }
  bool boolean(bool value) { wrong(value ? "true" : "false"); }
  bool binary(binary_t&) { wrong("binary data"); }
  bool number_float(number_float_t, const string_t& text) { wrong(text); }
  bool number_integer(number_integer_t value) {
    if (value < 0) wrong(std::to_string(value));
    return number_unsigned(static_cast<number_unsigned_t>(value));
  }
  bool number_unsigned(number_unsigned_t value) {
    if (place_ != place::shape && place_ != place::offsets) wrong(std::to_string(value));
    if (value > static_cast<number_unsigned_t>((std::numeric_limits<std::int64_t>::max)())) {
      fail("tensor " + in_quotes(entry_.name) + ": " + (place_ == place::shape ? "shape" : "data_offsets") +
           " contains " + std::to_string(value) + ", which is above 2^63 - 1");
    }
    if (place_ == place::shape) {
      if (entry_.shape.size() == max_dimensions) {
        fail("tensor " + in_quotes(entry_.name) + ": has more than " + std::to_string(max_dimensions) + " dimensions");
      }
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    } else {
      if (offsets_ == 2) fail("tensor " + in_quotes(entry_.name) + ": data_offsets has more than two numbers");
      (offsets_ == 0 ? entry_.begin : entry_.end) = static_cast<std::int64_t>(value);
      ++offsets_;
    }
    return true;
  }
  bool string(string_t& value) {
    if (place_ == place::metadata) {
      result.metadata[key_] = std::move(value);
      return true;
    }
    if (place_ != place::tensor || key_ != "dtype") wrong("the text " + in_quotes(value));
    const auto type = dtype_named(value);
    if (!type)
      fail("tensor " + in_quotes(entry_.name) + ": dtype " + in_quotes(value) + " is not supported (known: " + known() +
           ")");
    entry_.type = *type;
    return true;
  }
  bool start_object(std::size_t) {
    if (place_ == place::nothing) {
      place_ = place::root;
    } else if (place_ == place::root && key_ == "__metadata__") {
      place_ = place::metadata;
    } else if (place_ == place::root) {
      place_ = place::tensor;
      entry_ = {};
      entry_.name = key_;
      seen_ = {};
      offsets_ = 0;
    } else {
      wrong("an object");
    }
    return true;
  }
  bool key(string_t& name) {
    if (place_ == place::tensor) {
      const auto field = name == "dtype" ? 0U : name == "shape" ? 1U : name == "data_offsets" ? 2U : 3U;
      if (field == 3U) fail("tensor " + in_quotes(entry_.name) + ": unknown field " + in_quotes(name));
      if (seen_[field]) fail("tensor " + in_quotes(entry_.name) + ": field " + in_quotes(name) + " appears twice");
      seen_[field] = true;
    } else if (place_ == place::metadata) {
      if (result.metadata.contains(name)) fail("__metadata__ has the key " + in_quotes(name) + " twice");
    } else if (!names_.insert(name).second) {
      fail("the name " + in_quotes(name) + " appears twice");
    }
    key_ = std::move(name);
    return true;
  }
  bool end_object() {
    if (place_ == place::tensor) {
      for (const auto& [index, field] : {std::pair{0, "dtype"}, std::pair{1, "shape"}, std::pair{2, "data_offsets"}}) {
        if (!seen_[index]) fail("tensor " + in_quotes(entry_.name) + ": has no " + field);
      }
      result.entries.push_back(std::move(entry_));
    }
    place_ = place_ == place::root ? place::done : place::root;
    return true;
  }
  bool start_array(std::size_t) {
    if (place_ == place::tensor && key_ == "shape") {
      place_ = place::shape;
    } else if (place_ == place::tensor && key_ == "data_offsets") {
      place_ = place::offsets;
    } else {
      wrong("an array");
    }
    return true;
  }
  bool end_array() {
    if (place_ == place::offsets && offsets_ != 2) {
      fail("tensor " + in_quotes(entry_.name) + ": data_offsets needs two numbers, has " + std::to_string(offsets_));
    }
    place_ = place::tensor;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token, const nlohmann::json::exception&) {
    fail("the header is not valid JSON (at its byte " + std::to_string(position) + ", after " + in_quotes(token) + ")");
  }

  header result;

 private:
  enum class place { nothing, root, metadata, tensor, shape, offsets, done };

  [[noreturn]] void wrong(const std::string& found) const {
    switch (place_) {
      case place::metadata:
        fail("__metadata__: the value of " + in_quotes(key_) + " must be text, found " + found);
      case place::tensor:
        fail("tensor " + in_quotes(entry_.name) + ": " + key_ + " must be " +
             (key_ == "dtype" ? "a type's name" : "a list of whole numbers") + ", found " + found);
      case place::shape:
        fail("tensor " + in_quotes(entry_.name) + ": shape must hold whole numbers from 0 up, found " + found);
      case place::offsets:
        fail("tensor " + in_quotes(entry_.name) + ": data_offsets must hold whole numbers from 0 up, found " + found);
      case place::root:
        fail("the entry " + in_quotes(key_) + " must be an object, found " + found);
      default:
        fail("the header must be a JSON object, found " + found);
    }
  }

  [[nodiscard]] static std::string known() {
    std::string names;
    for (const auto& row : dtype_rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
    return names;
  }

  std::string_view where_;
  place place_ = place::nothing;
  std::string key_;
  std::unordered_set<std::string> names_;
  entry entry_;
  std::array<bool, 3> seen_ = {};
  int offsets_ = 0;
};

}  // namespace detail

/// Reads and checks the header of a file whose content is `file`; `where` names it in messages. Throws errc::corrupt
/// for anything the format does not allow, with the likely cause when the file is something else or was cut short.
[[nodiscard]] inline header parse_header(std::span<const std::byte> file, std::string_view where) {
  const auto fail = [&](const std::string& what) { throw error(errc::corrupt, std::string(where) + ": " + what); };
  const auto size = static_cast<std::uint64_t>(file.size());
  const auto kind = likely_kind(file.first((std::min)(file.size(), sniff_bytes)));
  const bool other = !kind.empty() && kind != likely_safetensors;
  const std::string guess = other ? "; this looks like " + std::string(kind) : "";

  if (size < 8) fail("not a safetensors file: have " + std::to_string(size) + " bytes, need at least 8" + guess);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > max_header_bytes) {
    fail("not a safetensors file: its first 8 bytes give a header of " + std::to_string(length) + " bytes, at most " +
         std::to_string(max_header_bytes) + " are allowed" + guess);
  }
  if (size > 8 && length > 0 && file[8] != std::byte{'{'}) {
    fail("not a safetensors file: the header does not begin with '{'" + guess);
  }
  if (length > size - 8) {
    fail("truncated: have " + std::to_string(size) + " bytes, need " + std::to_string(length + 8) +
         " for the header alone" + guess);
  }
  if (length == 0) fail("not a safetensors file: its header is empty" + guess);

  const auto* text = reinterpret_cast<const char*>(file.data()) + 8;
  detail::header_builder builder(where);
  if (!nlohmann::json::sax_parse(text, text + length, &builder)) fail("the header is not valid JSON");
  header result = std::move(builder.result);
  result.data_begin = static_cast<std::int64_t>(length + 8);

  for (auto& e : result.entries) {
    const auto tensor = "tensor " + detail::in_quotes(e.name) + ": ";
    const auto elements = elements_of(e.shape);
    constexpr auto most = (std::numeric_limits<std::int64_t>::max)();
    if (!elements || *elements > most / bytes_of(e.type)) {
      fail(tensor + "shape " + to_string(e.shape) + " has more elements than 64 bits can count");
    }
    e.elements = *elements;
    if (e.begin > e.end) {
      fail(tensor + "data_offsets [" + std::to_string(e.begin) + ", " + std::to_string(e.end) + "] run backwards");
    }
    const auto needed = e.elements * bytes_of(e.type);
    if (e.end - e.begin != needed) {
      fail(tensor + std::string(name_of(e.type)) + " " + to_string(e.shape) + " needs " + std::to_string(needed) +
           " bytes, data_offsets [" + std::to_string(e.begin) + ", " + std::to_string(e.end) + "] give " +
           std::to_string(e.end - e.begin));
    }
  }

  std::sort(result.entries.begin(), result.entries.end(), [](const entry& a, const entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end != b.end ? a.end < b.end : a.name < b.name;
  });
  std::int64_t covered = 0;
  const entry* previous = nullptr;
  for (const auto& e : result.entries) {
    if (e.begin < covered) {
      fail("tensors " + detail::in_quotes(previous->name) + " and " + detail::in_quotes(e.name) +
           " overlap at data byte " + std::to_string(e.begin));
    }
    if (e.begin > covered) {
      fail("data bytes [" + std::to_string(covered) + ", " + std::to_string(e.begin) + ") before tensor " +
           detail::in_quotes(e.name) + " belong to no tensor");
    }
    covered = e.end;
    previous = &e;
  }
  const auto have = static_cast<std::uint64_t>(covered);
  const auto data = size - static_cast<std::uint64_t>(result.data_begin);
  if (have > data) {
    fail("truncated: have " + std::to_string(size) + " bytes, need " +
         std::to_string(static_cast<std::uint64_t>(result.data_begin) + have));
  }
  if (have < data) {
    fail("the last " + std::to_string(data - have) + " of " + std::to_string(size) + " bytes belong to no tensor");
  }
  return result;
}

/// A file opened for reading: its header checked, its data mapped and not copied.
class file {
 public:
  /// Throws errc::io when `path` cannot be read and errc::corrupt when it is not a whole, consistent file.
  explicit file(const std::filesystem::path& path)
      : path_(path), mapping_(path), header_(parse_header(mapping_.bytes(), path.string())) {
    for (std::size_t i = 0; i < header_.entries.size(); ++i) index_.emplace(header_.entries[i].name, i);
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// The whole file, header included.
  [[nodiscard]] std::span<const std::byte> content() const noexcept { return mapping_.bytes(); }
  /// All tensors, in the order of their data.
  [[nodiscard]] const std::vector<entry>& entries() const noexcept { return header_.entries; }
  /// The file's "__metadata__".
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept { return header_.metadata; }

  /// The tensor of that name, or nullptr.
  [[nodiscard]] const entry* find(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &header_.entries[found->second];
  }

  /// The tensor of that name; throws errc::mismatch when there is none.
  [[nodiscard]] const entry& at(std::string_view name) const {
    if (const auto* found = find(name)) return *found;
    throw error(errc::mismatch, path_.string() + ": has no tensor " + detail::in_quotes(name));
  }

  /// The bytes of a tensor, where they lie in the file.
  [[nodiscard]] std::span<const std::byte> bytes(const entry& e) const {
    return content().subspan(static_cast<std::size_t>(header_.data_begin + e.begin),
                             static_cast<std::size_t>(e.end - e.begin));
  }

  /// A tensor of F32 elements used in place, [elements]; nothing when it has another type or is not aligned (files from
  /// other writers need not be).
  [[nodiscard]] std::optional<std::span<const float>> floats_in_place(const entry& e) const {
    const auto raw = bytes(e);
    if (e.type != dtype::f32 || reinterpret_cast<std::uintptr_t>(raw.data()) % alignof(float) != 0) return std::nullopt;
    return std::span(reinterpret_cast<const float*>(raw.data()), static_cast<std::size_t>(e.elements));
  }

  /// Copies a tensor into `out`, [elements], converting F16, BF16 and F64 to float (F64 rounds to nearest). Throws
  /// errc::unsupported for other types and errc::mismatch when the sizes differ.
  void copy_floats(const entry& e, std::span<float> out) const;

 private:
  std::filesystem::path path_;
  mapped_file mapping_;
  header header_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

namespace detail {

/// IEEE 754 binary16 to binary32, exactly.
[[nodiscard]] constexpr float float_from_f16(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU;
  const std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0x1FU) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (fraction << 13));
  // Subnormal halves are fraction * 2^-24, which a float holds exactly.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

/// bfloat16 is the upper half of a float.
[[nodiscard]] constexpr float float_from_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

template <class Stored, class Convert>
void convert(std::span<const std::byte> from, std::span<float> to, Convert to_float) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    Stored value;
    std::memcpy(&value, from.data() + i * sizeof(Stored), sizeof(Stored));  // the file need not be aligned
    to[i] = to_float(value);
  }
}

[[nodiscard]] constexpr bool converts_to_float(dtype type) noexcept {
  return type == dtype::f32 || type == dtype::f16 || type == dtype::bf16 || type == dtype::f64;
}

}  // namespace detail

inline void file::copy_floats(const entry& e, std::span<float> out) const {
  if (out.size() != static_cast<std::size_t>(e.elements)) {
    throw error(errc::mismatch, path_.string() + ": tensor " + detail::in_quotes(e.name) + " has " +
                                    std::to_string(e.elements) + " elements, the place for it " +
                                    std::to_string(out.size()));
  }
  const auto raw = bytes(e);
  switch (e.type) {
    case dtype::f32:
      if (!raw.empty()) std::memcpy(out.data(), raw.data(), raw.size());
      break;
    case dtype::f16:
      detail::convert<std::uint16_t>(raw, out, detail::float_from_f16);
      break;
    case dtype::bf16:
      detail::convert<std::uint16_t>(raw, out, detail::float_from_bf16);
      break;
    case dtype::f64:
      detail::convert<double>(raw, out, [](double value) { return static_cast<float>(value); });
      break;
    default:
      throw error(errc::unsupported, path_.string() + ": tensor " + detail::in_quotes(e.name) + " has dtype " +
                                         std::string(name_of(e.type)) + ", need F32, F16, BF16 or F64");
  }
}

/// A tensor to be written: its name, its row-major shape and its values, which somebody else owns.
struct tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;  // [product of shape]
};

/// Writes F32 tensors in the order given to `sink(std::span<const std::byte>)`, piece by piece and without copying the
/// values. The same input gives the same bytes. Throws errc::invalid_argument for repeated or reserved names, names
/// that are not UTF-8, shapes that disagree with the number of values and headers above the format's limit.
template <class Sink>
void write(Sink&& sink, std::span<const tensor> tensors, const std::map<std::string, std::string>& metadata = {}) {
  const auto fail = [](const std::string& what) { throw error(errc::invalid_argument, "safetensors: " + what); };
  const auto as_json = [&](const std::string& text) {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
      fail(detail::in_quotes(text) + " is not valid UTF-8");
    }
    return std::string();
  };

  std::string text = "{";
  const auto separate = [&] {
    if (text.size() > 1) text += ',';
  };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    bool first = true;
    for (const auto& [key, value] : metadata) {
      text += (first ? "" : ",") + as_json(key) + ":" + as_json(value);
      first = false;
    }
    text += '}';
  }
  std::unordered_set<std::string_view> names;
  std::int64_t offset = 0;
  for (const auto& t : tensors) {
    if (t.name == "__metadata__") fail("a tensor cannot be called '__metadata__'");
    if (!names.insert(t.name).second) fail("two tensors are called " + detail::in_quotes(t.name));
    if (t.shape.size() > max_dimensions) {
      fail("tensor " + detail::in_quotes(t.name) + " has " + std::to_string(t.shape.size()) + " dimensions, at most " +
           std::to_string(max_dimensions) + " are allowed");
    }
    const auto elements = elements_of(t.shape);
    if (!elements || static_cast<std::uint64_t>(*elements) != t.values.size()) {
      fail("tensor " + detail::in_quotes(t.name) + " of shape " + to_string(t.shape) + " was given " +
           std::to_string(t.values.size()) + " values");
    }
    const auto end = offset + static_cast<std::int64_t>(t.values.size_bytes());
    separate();
    text += as_json(t.name) + ":{\"dtype\":\"F32\",\"shape\":[";
    for (std::size_t i = 0; i < t.shape.size(); ++i) {
      if (i != 0) text += ',';
      text += std::to_string(t.shape[i]);
    }
    text += "],\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(end) + "]}";
    offset = end;
  }
  text += '}';
  // Spaces up to a multiple of 8 keep the data aligned for readers that map the file.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > max_header_bytes) {
    fail("the header would need " + std::to_string(text.size()) + " bytes, the format allows " +
         std::to_string(max_header_bytes));
  }

  const auto length = static_cast<std::uint64_t>(text.size());
  sink(std::as_bytes(std::span(&length, 1)));
  sink(std::as_bytes(std::span(text.data(), text.size())));
  for (const auto& t : tensors) sink(std::as_bytes(t.values));
}

/// Writes F32 tensors to `path`, all or nothing. Errors: as write(), and errc::io with the path and the reason.
inline void save(const std::filesystem::path& path, std::span<const tensor> tensors,
                 const std::map<std::string, std::string>& metadata = {}) {
  atomic_file target(path);
  write([&](std::span<const std::byte> bytes) { target.write(bytes); }, tensors, metadata);
  target.commit();
}

/// A tensor that a model needs.
struct expected_tensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// What a comparison of a model with a file found.
struct match_report {
  std::vector<std::string> problems;  ///< each one makes loading wrong
  std::vector<std::string> notes;     ///< differences that are harmless, and why
};

/// Compares the tensors a model needs with those a file has, and lists every difference, not only the first: missing,
/// unexpected, wrong shape (and whether it is transposed), wrong dtype. A model with a tied head (it expects
/// model.embed_tokens.weight and no lm_head.weight) accepts a stored lm_head.weight that is bitwise equal to the table.
[[nodiscard]] inline match_report match_tensors(std::span<const expected_tensor> expected, const file& from) {
  constexpr std::string_view table_name = "model.embed_tokens.weight";
  constexpr std::string_view head_name = "lm_head.weight";
  match_report report;
  std::unordered_set<std::string_view> names;
  for (const auto& want : expected) names.insert(want.name);
  const bool tied = names.contains(table_name) && !names.contains(head_name);

  for (const auto& want : expected) {
    const auto needs = detail::in_quotes(want.name) + " " + to_string(want.shape);
    const auto* have = from.find(want.name);
    if (have == nullptr) {
      std::string why;
      if (want.name == head_name && from.find(table_name) != nullptr)
        why = " (the file may come from a model with a tied head)";
      if (tied && want.name == table_name && from.find(head_name) != nullptr)
        why = " (the file has lm_head.weight only)";
      report.problems.push_back("missing tensor " + needs + why);
      continue;
    }
    if (have->shape != want.shape) {
      const bool transposed =
          std::equal(want.shape.rbegin(), want.shape.rend(), have->shape.begin(), have->shape.end());
      report.problems.push_back("wrong shape of " + detail::in_quotes(want.name) + ": have " + to_string(have->shape) +
                                ", need " + to_string(want.shape) + (transposed ? " (transposed)" : ""));
    }
    if (!detail::converts_to_float(have->type)) {
      report.problems.push_back("wrong dtype of " + detail::in_quotes(want.name) + ": have " +
                                std::string(name_of(have->type)) + ", need F32, F16, BF16 or F64");
    }
  }
  for (const auto& have : from.entries()) {
    if (names.contains(have.name)) continue;
    const auto* table = from.find(table_name);
    if (tied && have.name == head_name && table != nullptr) {
      const auto a = from.bytes(have);
      const auto b = from.bytes(*table);
      const bool same = have.type == table->type && have.shape == table->shape && a.size() == b.size() &&
                        (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
      if (same) {
        report.notes.push_back(
            "the file stores 'lm_head.weight' beside 'model.embed_tokens.weight' with the same "
            "values; the model ties them and uses one");
      } else {
        report.problems.push_back("'lm_head.weight' " + std::string(name_of(have.type)) + " " + to_string(have.shape) +
                                  " differs from 'model.embed_tokens.weight' " + std::string(name_of(table->type)) +
                                  " " + to_string(table->shape) + ", but the model ties the two");
      }
      continue;
    }
    report.problems.push_back("unexpected tensor " + detail::in_quotes(have.name) + " " + to_string(have.shape));
  }
  return report;
}

/// As match_tensors, but throws errc::mismatch with the first 20 problems, one a line, and the number of the others:
/// the file of another model differs in every tensor. Returns the notes.
inline std::vector<std::string> require_tensors(std::span<const expected_tensor> expected, const file& from) {
  auto report = match_tensors(expected, from);
  if (report.problems.empty()) return std::move(report.notes);
  std::string text = from.path().string() + " does not fit the model (" + std::to_string(from.entries().size()) +
                     " tensors in the file, " + std::to_string(expected.size()) + " in the model):";
  constexpr std::size_t most = 20;
  const std::size_t named = (std::min)(report.problems.size(), most);
  for (std::size_t i = 0; i < named; ++i) text += "\n  " + report.problems[i];
  if (named < report.problems.size()) text += "\n  and " + std::to_string(report.problems.size() - named) + " more";
  throw error(errc::mismatch, text);
}

}  // namespace smelt::safetensors
