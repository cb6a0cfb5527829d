// Does a file have its old content or its new content, whatever fails in between?
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <smelt/io/atomic_file.hpp>
#include <string>

#include "catch.hpp"
#include "support/small_disk.hpp"
#include "support/temporary_folder.hpp"

namespace fs = std::filesystem;
using smelt::atomic_file;
using smelt_test::names_in;
using smelt_test::temporary_folder;

namespace {

/// The largest file this process may write, for the length of a scope; a write past it fails with EFBIG.
class file_size_limit {
 public:
  explicit file_size_limit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit lower{bytes, old_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &lower) == 0);
  }
  file_size_limit(const file_size_limit&) = delete;
  file_size_limit& operator=(const file_size_limit&) = delete;
  ~file_size_limit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

template <class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const smelt::error& e) {
    CHECK(e.code() == smelt::errc::io);
    return e.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a file appears whole under its name at commit and not before", "[io][atomic_file]") {
  const temporary_folder folder;
  const auto target = folder.path() / "weights";
  {
    atomic_file file(target);
    file.write("first ");
    file.write("second");
    CHECK_FALSE(fs::exists(target));
    file.commit();
    CHECK_THROWS_AS(file.write("more"), smelt::error);
    CHECK_THROWS_AS(file.commit(), smelt::error);
  }
  CHECK(smelt::read_file(target) == "first second");
  smelt::write_file(target, "third");
  CHECK(smelt::read_file(target) == "third");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"weights"});
}

TEST_CASE("without a commit the old content stays and nothing is left behind", "[io][atomic_file]") {
  const temporary_folder folder;
  const auto target = folder.path() / "weights";
  smelt::write_file(target, "old");
  {
    atomic_file file(target);
    file.write("half of the new");
    CHECK(names_in(folder.path()).size() == 2);
  }
  CHECK(smelt::read_file(target) == "old");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"weights"});
}

TEST_CASE("several files of one folder can be in the making at once", "[io][atomic_file]") {
  const temporary_folder folder;
  atomic_file a(folder.path() / "a");
  atomic_file b(folder.path() / "b");
  a.write("A");
  b.write("B");
  b.commit();
  a.commit();
  CHECK(smelt::read_file(folder.path() / "a") == "A");
  CHECK(smelt::read_file(folder.path() / "b") == "B");
}

TEST_CASE("a write that the system refuses leaves the old content and names path and reason", "[io][atomic_file]") {
  const temporary_folder folder;
  const auto target = folder.path() / "weights";
  smelt::write_file(target, "old");
  const std::string big(1 << 20, 'x');
  std::string message;
  {
    const file_size_limit limit(100'000);
    message = message_of([&] { smelt::write_file(target, big); });
  }
  CHECK(contains(message, target.string()));
  CHECK(contains(message, "File too large"));
  CHECK(smelt::read_file(target) == "old");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"weights"});
}

TEST_CASE("a full disk leaves the old content and names path and reason", "[io][atomic_file]") {
  const temporary_folder folder;
  const smelt_test::small_disk disk(folder.path(), 64 * 1024);
  if (!disk.mounted()) {
    WARN("no right to mount a small file system: the full disk was not tried");
    return;
  }
  const auto target = folder.path() / "weights";
  smelt::write_file(target, "old");
  const std::string big(1 << 20, 'x');
  const auto message = message_of([&] { smelt::write_file(target, big); });
  CHECK(contains(message, target.string()));
  CHECK(contains(message, "No space left on device"));
  CHECK(smelt::read_file(target) == "old");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"weights"});
  // The space is free again, so a smaller file fits.
  smelt::write_file(target, std::string(30'000, 'y'));
  CHECK(fs::file_size(target) == 30'000);
}

TEST_CASE("targets that a rename would destroy or cannot reach are refused", "[io][atomic_file]") {
  const temporary_folder folder;
  CHECK(contains(message_of([] { atomic_file file("/dev/full"); }), "not a regular file"));
  CHECK(contains(message_of([&] { atomic_file file(folder.path()); }), "directory"));
  const auto lost = folder.path() / "no" / "such" / "folder" / "f";
  const auto message = message_of([&] { atomic_file file(lost); });
  CHECK(contains(message, (folder.path() / "no").string()));
  CHECK(contains(message, "No such file or directory"));
}

TEST_CASE("links, permissions and the longest names survive a save", "[io][atomic_file]") {
  const temporary_folder folder;
  const auto real = folder.path() / "real";
  const auto link = folder.path() / "link";
  smelt::write_file(real, "old");
  fs::permissions(real, fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
  const auto permissions = fs::status(real).permissions();
  fs::create_symlink("real", link);
  smelt::write_file(link, "new");
  CHECK(fs::is_symlink(link));
  CHECK(smelt::read_file(real) == "new");
  CHECK(fs::status(real).permissions() == permissions);

  const auto longest = folder.path() / std::string(255, 'n');
  smelt::write_file(longest, "fits");
  CHECK(smelt::read_file(longest) == "fits");
}

TEST_CASE("a descriptor reports errors by path", "[io][atomic_file]") {
  smelt::descriptor full("/dev/full", O_WRONLY);
  const auto message = message_of([&] { full.write(std::as_bytes(std::span("x", 1))); });
  CHECK(contains(message, "/dev/full"));
  CHECK(contains(message, "No space left on device"));
}
