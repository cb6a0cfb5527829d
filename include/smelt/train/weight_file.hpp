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

/// Fills a buffer from a file and returns what is worth a note (see safetensors::match_tensors). Throws errc::mismatch
/// with every tensor that is missing, unexpected or of another shape; then the buffer is as it was.
inline std::vector<std::string> read_tensors(const safetensors::file& from, weight_buffer<float>& buffer,
                                             const spec& s) {
  const std::vector<named_tensor> tensors = named_tensors(buffer.layout(), s);
  std::vector<safetensors::expected_tensor> expected;
  for (const named_tensor& t : tensors) expected.push_back({t.name, t.shape});
  std::vector<std::string> notes = safetensors::require_tensors(expected, from);
  for (const named_tensor& t : tensors)
    from.copy_floats(from.at(t.name),
                     buffer.all().subspan(static_cast<std::size_t>(t.offset), static_cast<std::size_t>(t.size)));
  return notes;
}

inline constexpr const char* first_moment_suffix = ".first_moment";
inline constexpr const char* second_moment_suffix = ".second_moment";

/// Fills the two moments of an optimiser from one file, where their names carry the suffixes above. Errors as
/// read_tensors.
inline void read_moments(const safetensors::file& from, weight_buffer<float>& first, weight_buffer<float>& second,
                         const spec& s) {
  const std::vector<named_tensor> tensors = named_tensors(first.layout(), s);
  std::vector<safetensors::expected_tensor> expected;
  for (const named_tensor& t : tensors)
    for (const char* suffix : {first_moment_suffix, second_moment_suffix})
      expected.push_back({t.name + suffix, t.shape});
  static_cast<void>(safetensors::require_tensors(expected, from));
  for (const named_tensor& t : tensors) {
    const auto part = [&](weight_buffer<float>& b) {
      return b.all().subspan(static_cast<std::size_t>(t.offset), static_cast<std::size_t>(t.size));
    };
    from.copy_floats(from.at(t.name + first_moment_suffix), part(first));
    from.copy_floats(from.at(t.name + second_moment_suffix), part(second));
  }
}

}  // namespace smelt
