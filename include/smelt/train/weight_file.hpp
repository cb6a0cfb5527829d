// How do weights travel between a buffer and a file? Tensor by tensor, under the ecosystem's names.
#pragma once

#include <smelt/io/safetensors.hpp>
#include <smelt/model/tensor_names.hpp>
#include <smelt/model/weights.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace smelt {

/// The tensors of a buffer, ready to be written; `suffix` is added to every name. The buffer must outlive them.
[[nodiscard]] inline std::vector<safetensors::tensor> file_tensors(const weight_buffer<float>& buffer, const spec& s,
                                                                   const std::string& suffix = "") {
  std::vector<safetensors::tensor> tensors;
  for (named_tensor& t : named_tensors(buffer.layout(), s))
    tensors.push_back({t.name + suffix, std::move(t.shape),
                       buffer.all().subspan(static_cast<std::size_t>(t.offset), static_cast<std::size_t>(t.size))});
  return tensors;
}

/// What the names of an optimiser's moments add to a weight's name.
inline constexpr const char* first_moment_suffix = ".first_moment";
inline constexpr const char* second_moment_suffix = ".second_moment";

/// Throws errc::mismatch with every tensor of the weights that a file lacks, has beside them, or has in another shape;
/// returns what is worth a note (see safetensors::match_tensors).
inline std::vector<std::string> require_weights(const safetensors::file& from, const weight_layout& layout,
                                                const spec& s) {
  std::vector<safetensors::expected_tensor> expected;
  for (named_tensor& t : named_tensors(layout, s)) expected.push_back({std::move(t.name), std::move(t.shape)});
  return safetensors::require_tensors(expected, from);
}

/// The same for a file of an optimiser's two moments, whose names carry the suffixes above.
inline void require_moments(const safetensors::file& from, const weight_layout& layout, const spec& s) {
  std::vector<safetensors::expected_tensor> expected;
  for (const named_tensor& t : named_tensors(layout, s))
    for (const char* suffix : {first_moment_suffix, second_moment_suffix})
      expected.push_back({t.name + suffix, t.shape});
  static_cast<void>(safetensors::require_tensors(expected, from));
}

/// Fills a buffer from a file. Returns and throws as require_weights; when it throws, the buffer is as it was.
inline std::vector<std::string> read_tensors(const safetensors::file& from, weight_buffer<float>& buffer,
                                             const spec& s) {
  std::vector<std::string> notes = require_weights(from, buffer.layout(), s);
  for (const named_tensor& t : named_tensors(buffer.layout(), s))
    from.copy_floats(from.at(t.name),
                     buffer.all().subspan(static_cast<std::size_t>(t.offset), static_cast<std::size_t>(t.size)));
  return notes;
}

/// Fills the two moments of an optimiser from one file. Throws as require_moments; then the moments are as they were.
inline void read_moments(const safetensors::file& from, weight_buffer<float>& first, weight_buffer<float>& second,
                         const spec& s) {
  require_moments(from, first.layout(), s);
  for (const named_tensor& t : named_tensors(first.layout(), s)) {
    const auto part = [&](weight_buffer<float>& b) {
      return b.all().subspan(static_cast<std::size_t>(t.offset), static_cast<std::size_t>(t.size));
    };
    from.copy_floats(from.at(t.name + first_moment_suffix), part(first));
    from.copy_floats(from.at(t.name + second_moment_suffix), part(second));
  }
}

}  // namespace smelt
