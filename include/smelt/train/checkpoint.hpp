// How does a run survive a kill at any moment? By saving whole folders that prove themselves before they are believed.
#pragma once

#include <unistd.h>

#include <fcntl.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <smelt/core/error.hpp>
#include <smelt/io/checksum.hpp>
#include <smelt/io/descriptor.hpp>
#include <smelt/io/mapped_file.hpp>
#include <smelt/io/safetensors.hpp>
#include <smelt/train/run_folder.hpp>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

// A run's folder holds, per checkpoint,
//
//   step-00001200/model.safetensors      the weights
//   step-00001200/optimizer.safetensors  what the optimiser keeps
//   step-00001200/state.json             everything else, and the sizes and checksums of the two files above
//
// It is written as .tmp-save-00001200/, synced and renamed, so the name appears only when all of it is there. To save a
// step again, the old folder is set aside as .replaced-step-00001200 until the new one has its name; whichever of the
// two a crash leaves is used. state.json begins with the checksum of the rest of itself: every byte of a checkpoint is
// covered by one of the three sums.

namespace smelt {

/// The layout this library writes and the newest it reads.
inline constexpr std::int64_t checkpoint_version = 1;

/// Where a checkpoint lies; nothing is known yet about its content.
struct checkpoint_place {
  std::int64_t step = 0;
  std::filesystem::path folder;
};

/// A checkpoint whose checksums have been verified.
struct checkpoint {
  std::int64_t step = 0;
  std::filesystem::path folder;
  nlohmann::json state;         ///< what the caller saved
  safetensors::file weights;    ///< mapped, not copied
  safetensors::file optimizer;  ///< mapped, not copied
};

/// A checkpoint that could not be used, and why.
struct skipped_checkpoint {
  checkpoint_place place;
  std::string reason;
};

/// The newest valid checkpoint of a run, if any, and the newer ones that had to be passed over.
struct found_checkpoint {
  std::optional<checkpoint> newest;
  std::vector<skipped_checkpoint> skipped;
};

/// What a save did.
struct saved_checkpoint {
  std::filesystem::path folder;
  std::vector<std::string> warnings;  ///< left-overs and old checkpoints that could not be removed; the save is good
};

namespace detail {

inline constexpr std::string_view weights_name = "model.safetensors";
inline constexpr std::string_view optimizer_name = "optimizer.safetensors";
inline constexpr std::string_view state_name = "state.json";
inline constexpr std::string_view step_prefix = "step-";
inline constexpr std::string_view replaced_prefix = ".replaced-step-";
inline constexpr std::string_view temporary_prefix = ".tmp-";

[[nodiscard]] inline std::string step_digits(std::int64_t step) {
  auto digits = std::to_string(step);
  return std::string(digits.size() < 8 ? 8 - digits.size() : 0, '0') + digits;
}

/// The step in a folder's name; nothing when the name is not exactly what this library would write.
[[nodiscard]] inline std::optional<std::int64_t> step_in_name(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto digits = name.substr(prefix.size());
  std::int64_t step = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (failure != std::errc{} || end != digits.data() + digits.size() || step < 0 || step_digits(step) != digits) {
    return std::nullopt;
  }
  return step;
}

[[nodiscard]] inline std::string hex(std::uint64_t value) {
  std::string text(16, '0');
  for (auto& c : text) {
    c = "0123456789abcdef"[value >> 60];
    value <<= 4;
  }
  return text;
}

[[nodiscard]] inline std::string checksum_text(std::span<const std::byte> bytes) {
  return hex(checksum64(bytes));
}

[[nodiscard]] inline std::string checksum_text(std::string_view text) {
  return checksum_text(std::as_bytes(std::span(text.data(), text.size())));
}

inline constexpr std::string_view checksum_opening = "{\n  \"checksum\": \"";
inline constexpr std::string_view checksum_closing = "\",\n";

/// The text of state.json: `body` with its own checksum as first member.
[[nodiscard]] inline std::string sealed(const nlohmann::json& body) {
  const auto rest = std::string(checksum_closing) + body.dump(2).substr(2) + "\n";  // without the opening "{\n"
  return std::string(checksum_opening) + checksum_text(rest) + rest;
}

/// The body of a state.json whose checksum agrees. Throws errc::corrupt, or errc::unsupported for a newer layout.
[[nodiscard]] inline nlohmann::json unsealed(const std::string& text) {
  const auto at = checksum_opening.size();
  auto body = nlohmann::json::parse(std::string_view(text), nullptr, false);
  const bool sealed_here = text.size() > at + 16 && text.starts_with(checksum_opening) &&
                           text.compare(at, 16, checksum_text(std::string_view(text).substr(at + 16))) == 0;
  const bool readable = body.is_object() && body.contains("version") && body["version"].is_number_integer();
  // A later layout may seal itself differently; what it may not do is leave out its version. A damaged digit cannot
  // be taken for one as long as the rest of this layout's opening is there.
  if (readable && body["version"].get<std::int64_t>() > checkpoint_version &&
      (sealed_here || !text.starts_with(checksum_opening))) {
    throw error(errc::unsupported, "state.json has version " + std::to_string(body["version"].get<std::int64_t>()) +
                                       ", this program reads versions up to " + std::to_string(checkpoint_version));
  }
  if (text.empty()) throw error(errc::corrupt, "state.json is empty");
  if (body.is_discarded()) throw error(errc::corrupt, "state.json is not valid JSON (cut short or damaged)");
  if (!sealed_here) throw error(errc::corrupt, "state.json does not agree with its checksum (damaged or edited)");
  if (!readable || body["version"].get<std::int64_t>() < 1) throw error(errc::corrupt, "state.json has no version");
  return body;
}

/// Checks a file of a checkpoint against what state.json says of it.
inline void verify_file(const std::filesystem::path& folder, std::string_view name, const nlohmann::json& body,
                        bool with_checksum) {
  const auto label = std::string(name);
  const auto& files = body.contains("files") ? body["files"] : nlohmann::json();
  if (!files.is_object() || !files.contains(label) || !files[label].is_object() || !files[label].contains("bytes") ||
      !files[label]["bytes"].is_number_integer() || !files[label].contains("checksum") ||
      !files[label]["checksum"].is_string()) {
    throw error(errc::corrupt, "state.json says nothing about " + label);
  }
  const mapped_file file(folder / label);
  const auto needed = files[label]["bytes"].get<std::uint64_t>();
  if (file.bytes().size() != needed) {
    throw error(errc::corrupt, label + (file.bytes().size() < needed ? " is truncated" : " is too long") + ": have " +
                                   std::to_string(file.bytes().size()) + " bytes, need " + std::to_string(needed));
  }
  if (!with_checksum) return;
  const auto have = checksum_text(file.bytes());
  const auto wanted = files[label]["checksum"].get<std::string>();
  if (have != wanted) throw error(errc::corrupt, label + " is damaged: checksum " + have + ", need " + wanted);
}

/// The verified body of a checkpoint's state.json; without checksums only presence and sizes are looked at.
[[nodiscard]] inline nlohmann::json verified_body(const checkpoint_place& place, bool with_checksums) {
  auto body = unsealed(read_file(place.folder / state_name));
  if (!body.contains("step") || body["step"] != place.step) {
    throw error(errc::corrupt, "state.json is of step " + (body.contains("step") ? body["step"].dump() : "?") +
                                   ", its folder of step " + std::to_string(place.step));
  }
  if (!body.contains("state")) throw error(errc::corrupt, "state.json has no state");
  verify_file(place.folder, weights_name, body, with_checksums);
  verify_file(place.folder, optimizer_name, body, with_checksums);
  return body;
}

/// Writes a file into a folder nobody reads yet, synced; returns what state.json says of it.
[[nodiscard]] inline nlohmann::json write_tensors(const std::filesystem::path& path,
                                                  std::span<const safetensors::tensor> tensors) {
  descriptor file(path, O_WRONLY | O_CREAT | O_EXCL);
  checksum64_stream sum;
  std::int64_t bytes = 0;
  safetensors::write(
      [&](std::span<const std::byte> piece) {
        file.write(piece);
        sum.update(piece);
        bytes += static_cast<std::int64_t>(piece.size());
      },
      tensors, {{"format", "pt"}});  // the ecosystem's loaders ask for a format and know this one
  file.sync();
  file.close();
  return {{"bytes", bytes}, {"checksum", hex(sum.digest())}};
}

/// JSON would write a NaN or an infinity as null, and the resumed run would differ without a word.
inline void require_finite(const nlohmann::json& value, const std::string& place) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    throw error(errc::not_finite,
                "the state to be saved has " + std::to_string(value.get<double>()) + " at '" + place + "'");
  }
  if (!value.is_structured()) return;
  for (const auto& [key, item] : value.items()) require_finite(item, place + "/" + key);
}

inline void rename_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_errno("rename to '" + to.string() + "'", from, errno);
}

[[nodiscard]] inline bool is_there(const std::filesystem::path& path) {
  std::error_code failure;
  return std::filesystem::exists(std::filesystem::symlink_status(path, failure));
}

[[nodiscard]] inline bool is_folder(const std::filesystem::path& path) {
  std::error_code failure;
  return std::filesystem::is_directory(path, failure);
}

/// Everything in a run's folder, sorted by name; a folder that does not exist is empty.
[[nodiscard]] inline std::vector<std::filesystem::path> items_in(const std::filesystem::path& run) {
  std::vector<std::filesystem::path> result;
  std::error_code failure;
  for (std::filesystem::directory_iterator item(run, failure), end; !failure && item != end; item.increment(failure)) {
    result.push_back(item->path());
  }
  if (failure && failure != std::errc::no_such_file_or_directory) {
    throw error(errc::io, "cannot list folder '" + run.string() + "': " + failure.message());
  }
  std::sort(result.begin(), result.end());
  return result;
}

/// Removes a file or a folder; a failure becomes a warning, because nothing that counts depends on it.
inline void remove_all(const std::filesystem::path& item, std::vector<std::string>& warnings) {
  std::error_code failure;
  std::filesystem::remove_all(item, failure);
  if (failure) warnings.push_back("cannot remove '" + item.string() + "': " + failure.message());
}

/// Finishes or undoes what an interrupted save left behind.
inline void clean_up(const std::filesystem::path& run, std::vector<std::string>& warnings) {
  // Files this process is just writing into the folder are not left-overs.
  const auto own_files = std::string(temporary_prefix) + std::to_string(::getpid()) + "-";
  for (const auto& item : items_in(run)) {
    const auto name = item.filename().string();
    if (name.starts_with(temporary_prefix) && !name.starts_with(own_files)) remove_all(item, warnings);
    if (const auto step = step_in_name(name, replaced_prefix)) {
      const auto home = run / (std::string(step_prefix) + step_digits(*step));
      if (is_there(home)) {
        remove_all(item, warnings);
      } else {
        rename_folder(item, home);
      }
    }
  }
}

/// A folder renamed first is gone at once: a crash while its files are deleted leaves no half checkpoint.
inline void discard_folder(const std::filesystem::path& folder, const std::filesystem::path& run,
                           std::vector<std::string>& warnings) {
  const auto grave = run / (std::string(temporary_prefix) + "removed-" + folder.filename().string());
  if (::rename(folder.c_str(), grave.c_str()) != 0) {
    warnings.push_back("cannot remove '" + folder.string() + "': " + std::generic_category().message(errno));
    return;
  }
  remove_all(grave, warnings);
}

}  // namespace detail

/// All checkpoints of a run by name, newest first, whether valid or not. A folder that does not exist has none.
[[nodiscard]] inline std::vector<checkpoint_place> find_checkpoints(const std::filesystem::path& run) {
  std::vector<checkpoint_place> places;
  for (const auto& folder : detail::items_in(run)) {
    if (!detail::is_folder(folder)) continue;
    const auto name = folder.filename().string();
    if (const auto step = detail::step_in_name(name, detail::step_prefix)) places.push_back({*step, folder});
    // Set aside by a save that was interrupted: it counts only where its successor did not get the name.
    if (const auto step = detail::step_in_name(name, detail::replaced_prefix)) {
      const auto home = run / (std::string(detail::step_prefix) + detail::step_digits(*step));
      if (!detail::is_there(home)) places.push_back({*step, folder});
    }
  }
  std::sort(places.begin(), places.end(),
            [](const checkpoint_place& a, const checkpoint_place& b) { return a.step > b.step; });
  return places;
}

/// Opens one checkpoint and verifies every byte of it. Throws errc::corrupt or errc::io with the reason, and
/// errc::unsupported when a newer smelt wrote it; messages begin with the folder.
[[nodiscard]] inline checkpoint open_checkpoint(const checkpoint_place& place) {
  try {
    auto body = detail::verified_body(place, true);
    return {place.step, place.folder, std::move(body["state"]), safetensors::file(place.folder / detail::weights_name),
            safetensors::file(place.folder / detail::optimizer_name)};
  } catch (const error& e) {
    throw error(e.code(), place.folder.string() + ": " + e.what());
  }
}

/// Opens the newest checkpoint of a run that is whole, and lists the newer ones that are not, each with its reason. One
/// written by a newer smelt is never passed over silently: it throws errc::unsupported.
[[nodiscard]] inline found_checkpoint open_newest_checkpoint(const std::filesystem::path& run) {
  found_checkpoint result;
  for (const auto& place : find_checkpoints(run)) {
    try {
      result.newest.emplace(open_checkpoint(place));
      return result;
    } catch (const error& e) {
      if (e.code() == errc::unsupported) throw;
      result.skipped.push_back({place, e.what()});
    }
  }
  return result;
}

/// Saves a checkpoint of `step` and then removes old ones, so that `keep_last` (at least 1) whole ones with steps up to
/// this one stay. Saving a step again replaces it. `state` is any JSON without NaN or infinities. When anything fails,
/// an error is thrown and every earlier checkpoint is as it was. Checkpoints of later steps, left from before a run
/// went back, are not touched.
inline saved_checkpoint save_checkpoint(const run_folder& run, std::int64_t step,
                                        std::span<const safetensors::tensor> weights,
                                        std::span<const safetensors::tensor> optimizer, const nlohmann::json& state,
                                        std::int64_t keep_last = 3) {
  if (step < 0) throw error(errc::invalid_argument, "checkpoint step must be 0 or more, found " + std::to_string(step));
  if (keep_last < 1) {
    throw error(errc::invalid_argument, "checkpoints to keep must be 1 or more, found " + std::to_string(keep_last));
  }
  detail::require_finite(state, "");

  saved_checkpoint result;
  detail::clean_up(run.path(), result.warnings);
  const auto digits = detail::step_digits(step);
  const auto temporary = run.path() / (std::string(detail::temporary_prefix) + "save-" + digits);
  const auto replaced = run.path() / (std::string(detail::replaced_prefix) + digits);
  result.folder = run.path() / (std::string(detail::step_prefix) + digits);
  bool set_aside = false;
  try {
    std::filesystem::create_directory(temporary);
    nlohmann::json body;
    body["version"] = checkpoint_version;
    body["step"] = step;
    body["state"] = state;
    body["files"][std::string(detail::weights_name)] = detail::write_tensors(temporary / detail::weights_name, weights);
    body["files"][std::string(detail::optimizer_name)] =
        detail::write_tensors(temporary / detail::optimizer_name, optimizer);
    const auto text = detail::sealed(body);
    descriptor file(temporary / detail::state_name, O_WRONLY | O_CREAT | O_EXCL);
    file.write(std::as_bytes(std::span(text.data(), text.size())));
    file.sync();
    file.close();
    sync_directory(temporary);

    if (detail::is_there(result.folder)) {
      detail::rename_folder(result.folder, replaced);
      set_aside = true;
    }
    detail::rename_folder(temporary, result.folder);
    set_aside = false;
    sync_directory(run.path());
  } catch (const std::exception& e) {
    std::error_code ignored;
    if (set_aside) std::filesystem::rename(replaced, result.folder, ignored);
    std::filesystem::remove_all(temporary, ignored);
    const auto* own = dynamic_cast<const error*>(&e);
    throw error(own != nullptr ? own->code() : errc::io,
                "cannot save checkpoint '" + result.folder.string() + "': " + e.what());
  }

  if (detail::is_there(replaced)) detail::discard_folder(replaced, run.path(), result.warnings);
  std::int64_t whole = 0;
  for (const auto& place : find_checkpoints(run.path())) {
    if (place.step > step) continue;
    if (whole >= keep_last) {
      detail::discard_folder(place.folder, run.path(), result.warnings);
      continue;
    }
    // Broken ones do not count, or they would push out the ones that a resume needs. Sizes are enough here: checksums
    // would read everything again at each save.
    try {
      static_cast<void>(detail::verified_body(place, false));
      ++whole;
    } catch (const error&) {
      continue;
    }
  }
  return result;
}

}  // namespace smelt
