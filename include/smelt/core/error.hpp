// What does smelt throw? One exception type, with a code a program can switch on and a message a person can act on.
#pragma once

#include <stdexcept>
#include <string>

namespace smelt {

/// What kind of thing went wrong; the message says which thing, the value found and the value needed.
enum class errc {
  invalid_spec,      ///< an architecture that cannot exist
  invalid_argument,  ///< a call or an option outside its domain
  unsupported,       ///< a valid request that this operation does not cover
  io,                ///< a file that cannot be opened, read, written or replaced
  corrupt,           ///< a file whose content contradicts itself or its checksum
  mismatch,          ///< two things that must agree do not (shapes, vocabularies, checkpoints)
  overflow,          ///< an integer result that does not fit in 64 bits
  not_finite,        ///< a NaN or an infinity where a number is needed
};

/// The one exception type of smelt.
class error : public std::runtime_error {
 public:
  error(errc code, const std::string& message) : std::runtime_error(message), code_(code) {}

  /// What kind of thing went wrong.
  [[nodiscard]] errc code() const noexcept { return code_; }

 private:
  errc code_;
};

}  // namespace smelt
