// Which architecture does a SPEC argument name? A preset, or the spec in a JSON file.
#pragma once

#include <smelt/spec/spec.hpp>
#include <string>
#include <vector>

namespace smelt::tool {

/// An architecture with what the registry knows about it.
struct named_spec {
  std::string name;
  spec value;
  std::string partner_of;   ///< the preset whose budgets it has; empty for others
  std::string control;      ///< the preset that is its fully active control; empty when there is none
  std::string description;  ///< one line; empty for files
  std::string group;        ///< what it is listed with; empty for files
};

/// Every preset, in the registry's order: groups together.
[[nodiscard]] const std::vector<named_spec>& preset_specs();

/// What may follow the name of an unlooped preset of at least 5 layers: small-r4 is small with 2 entry and 2 exit
/// layers and the layers between visited 4 times.
inline constexpr const char* visits_suffix = "-r";

/// The architecture that `argument` names. A preset's name, or one with `visits_suffix` and a number from 2 to
/// max_visits, comes first (write ./name for a file); anything else is a
/// file that holds a spec, or a document of this program with a spec under "spec". Throws smelt::error: for a name
/// that is neither, with the nearest presets; for a file, as read_spec.
[[nodiscard]] named_spec spec_of_argument(const std::string& argument);

/// The shape of `s` in one line.
[[nodiscard]] std::string summary(const spec& s);

}  // namespace smelt::tool
