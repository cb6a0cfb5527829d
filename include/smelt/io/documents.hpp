// Where does text come from? From JSON Lines (one document a line), a text file (one document) or a folder of them.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <smelt/core/error.hpp>
#include <smelt/io/descriptor.hpp>
#include <smelt/io/sniff.hpp>
#include <smelt/io/tokens.hpp>

namespace smelt {

/// One piece of text that stands alone. Only `text` is always present.
struct document {
  std::string text;      ///< any bytes; UTF-8 when it came from JSON
  std::string category;  ///< what losses are reported by
  std::string source;    ///< where it was taken from
  std::string id;        ///< its name within the source
};

/// What a document_reader refuses.
struct document_options {
  /// Plain text files may hold any bytes: archives, UTF-16, models. Otherwise a file that is recognised as something
  /// other than text is an error that says what it looks like.
  bool any_bytes = false;
};

namespace detail {

// A file line by line, through one buffer; pipes work too.
class line_reader {
 public:
  explicit line_reader(const std::filesystem::path& path) : file_(path, O_RDONLY) { refill(); }

  [[nodiscard]] std::string_view buffered() const noexcept { return std::string_view(buffer_).substr(at_); }
  [[nodiscard]] std::int64_t number() const noexcept { return number_; }

  // The next line without its end; false at the end of the file.
  [[nodiscard]] bool next(std::string& line) {
    line.clear();
    if (buffered().empty() && !refill()) return false;
    ++number_;
    do {
      const std::string_view rest = buffered();
      const std::size_t end = rest.find('\n');
      line.append(rest.substr(0, end));
      if (end != std::string_view::npos) {
        at_ += end + 1;
        return true;
      }
    } while (refill());
    return true;
  }

 private:
  bool refill() {
    constexpr std::size_t size = std::size_t{1} << 16;
    buffer_.resize(size);
    buffer_.resize(file_.read(std::as_writable_bytes(std::span(buffer_.data(), size))));
    at_ = 0;
    return !buffer_.empty();
  }

  descriptor file_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::int64_t number_ = 0;
};

[[nodiscard]] inline std::string lower_extension(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension;
}

[[nodiscard]] inline bool is_json_lines(const std::filesystem::path& path) {
  const std::string extension = lower_extension(path);
  return extension == ".jsonl" || extension == ".ndjson";
}

// Is this the beginning of a file a person could read? Several signatures are plain letters, and a text may open
// with the word "GGUF".
[[nodiscard]] inline bool reads_as_text(std::string_view head) {
  for (const char c : head) {
    const auto value = static_cast<unsigned char>(c);
    if (value < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f') return false;
  }
  const auto invalid = first_invalid_utf8(head);
  return !invalid || *invalid + 3 >= static_cast<std::int64_t>(head.size());  // the head may cut a character
}

// What a file that should be plain text looks like instead; "" when it may be text.
[[nodiscard]] inline std::string_view not_text(const std::filesystem::path& path, std::string_view head) {
  head = head.substr(0, sniff_bytes);
  const std::string_view kind = likely_kind(std::as_bytes(std::span(head.data(), head.size())));
  if (kind.empty() || !reads_as_text(head)) return kind;
  const auto says = [kind](std::string_view word) { return kind.find(word) != std::string_view::npos; };
  const std::string extension = lower_extension(path);
  if (says("HTML")) return extension == ".html" || extension == ".htm" || extension == ".xhtml" ? "" : kind;
  if (says("XML")) return extension == ".xml" || extension == ".xhtml" ? "" : kind;
  return says("Git LFS") || says("PDF") || says("empty") ? kind : "";
}

}  // namespace detail

/// Reads documents one after another; holds one at a time.
///
/// `path` is one of
/// - a .jsonl or .ndjson file: one JSON object a line, with a string "text" and optionally strings "category", "source"
///   and "id" (a whole number will do for "id"); other fields and blank lines are skipped;
/// - any other file: its whole content is one document, byte for byte;
/// - a folder: its files of both kinds, nested ones included, in the order of their names, hidden and empty ones left
///   out. The first folder on the way to a text file is its category, its relative path its id.
///
/// Throws io for what cannot be opened or read and corrupt for what is not text or not such JSON, naming the file, the
/// line, the field and what was found.
class document_reader {
 public:
  explicit document_reader(std::filesystem::path path, document_options options = {})
      : root_(std::move(path)), options_(options) {
    if (!std::filesystem::exists(root_)) throw error(errc::io, "no text at '" + root_.string() + "': no such file");
    in_folder_ = std::filesystem::is_directory(root_);
    if (!in_folder_) {
      files_.push_back(root_);
      return;
    }
    try {
      for (auto item = std::filesystem::recursive_directory_iterator(root_);
           item != std::filesystem::recursive_directory_iterator(); ++item) {
        const bool hidden = item->path().filename().string().starts_with('.');
        if (hidden && item->is_directory()) item.disable_recursion_pending();
        if (!hidden && item->is_regular_file() && item->file_size() > 0) files_.push_back(item->path());
      }
    } catch (const std::filesystem::filesystem_error& e) {
      throw error(errc::io, "cannot list '" + e.path1().string() + "': " + e.code().message());
    }
    if (files_.empty())
      throw error(errc::io, "no text in folder '" + root_.string() + "': need at least 1 file, have 0");
    std::sort(files_.begin(), files_.end());
  }

  /// Puts the next document into `out`, whose memory is used again; false, with `out` unchanged, after the last one.
  [[nodiscard]] bool next(document& out) {
    for (;;) {
      if (lines_) {
        if (next_line(out)) return true;
        lines_.reset();
      }
      if (file_ == files_.size()) return false;
      const std::filesystem::path& path = files_[file_++];
      if (!detail::is_json_lines(path)) {
        read_text(path, out);
        return true;
      }
      lines_.emplace(path);
      const std::string_view head = lines_->buffered().substr(0, sniff_bytes);
      const std::string_view kind = likely_kind(std::as_bytes(std::span(head.data(), head.size())));
      if (!kind.empty()) refuse(path, kind, "need JSON Lines");
    }
  }

 private:
  [[noreturn]] static void refuse(const std::filesystem::path& path, std::string_view kind, std::string_view need) {
    throw error(errc::corrupt,
                "'" + path.string() + "' is not text: it looks like " + std::string(kind) + "; " + std::string(need));
  }

  void read_text(const std::filesystem::path& path, document& out) const {
    if (detail::lower_extension(path) == ".json") {
      throw error(errc::unsupported, "'" + path.string() +
                                         "' may be documents or plain text: name it .jsonl (one JSON object a line, "
                                         "with the field \"text\") or .txt");
    }
    std::string text = read_file(path);
    if (!options_.any_bytes || text.empty()) {
      const std::string_view kind = detail::not_text(path, text);
      if (!kind.empty()) refuse(path, kind, "need plain text of at least 1 byte");
    }
    out.text = std::move(text);
    out.category.clear();
    out.source = root_.filename().string();
    out.id.clear();
    if (in_folder_) {
      const std::filesystem::path relative = path.lexically_relative(root_);
      if (relative.has_parent_path()) out.category = relative.begin()->string();
      out.id = relative.generic_string();
    }
  }

  [[nodiscard]] bool next_line(document& out) {
    do {
      if (!lines_->next(line_)) return false;
      if (lines_->number() == 1 && line_.starts_with("\xEF\xBB\xBF")) line_.erase(0, 3);  // a byte order mark
    } while (line_.find_first_not_of(" \t\r") == std::string::npos);

    const nlohmann::json object = parse_line();
    if (!object.is_object()) fail(std::string("need a JSON object, found ") + object.type_name());
    const auto text = object.find("text");
    if (text == object.end()) fail("the field \"text\" is missing");
    out.text = string_field("text", *text, false);
    const auto optional = [&](const char* name, bool number_allowed) {
      const auto field = object.find(name);
      return field == object.end() || field->is_null() ? std::string() : string_field(name, *field, number_allowed);
    };
    out.category = optional("category", false);
    out.source = optional("source", false);
    out.id = optional("id", true);
    return true;
  }

  [[nodiscard]] nlohmann::json parse_line() const {
    try {
      return nlohmann::json::parse(std::string_view(line_));
    } catch (const nlohmann::json::exception& e) {
      if (const auto invalid = first_invalid_utf8(line_)) {
        const auto at = static_cast<std::size_t>(*invalid);
        fail("byte " + std::to_string(*invalid) + " of the line (" +
             readable_text(std::string_view(line_).substr(at, 1)) + ") is not UTF-8, which JSON must be");
      }
      if (lines_->number() == 1 && line_.starts_with('[')) {
        fail("the file is one JSON array; need one object a line (jq -c '.[]' converts)");
      }
      const std::string_view what = e.what();
      const std::size_t bracket = what.find("] ");  // the library's own error number means nothing to the reader
      fail("not JSON: " + std::string(bracket == std::string_view::npos ? what : what.substr(bracket + 2)));
    }
  }

  [[nodiscard]] std::string string_field(const char* name, const nlohmann::json& value, bool number_allowed) const {
    if (value.is_string()) return value.get<std::string>();
    if (number_allowed && value.is_number_integer()) return value.dump();
    fail(std::string("the field \"") + name + "\" must be a string, found " + value.type_name());
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw error(errc::corrupt, files_[file_ - 1].string() + ":" + std::to_string(lines_->number()) + ": " + what);
  }

  std::filesystem::path root_;
  document_options options_;
  bool in_folder_ = false;
  std::vector<std::filesystem::path> files_;
  std::size_t file_ = 0;  // the next one to open
  std::optional<detail::line_reader> lines_;
  std::string line_;
};

/// All documents at `path`, in order; see document_reader.
[[nodiscard]] inline std::vector<document> read_documents(const std::filesystem::path& path,
                                                          document_options options = {}) {
  document_reader reader(path, options);
  std::vector<document> documents;
  for (document next; reader.next(next);) documents.push_back(next);
  return documents;
}

}  // namespace smelt
