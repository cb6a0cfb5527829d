// How does a test use the smelt program? As its users do: arguments in, exit code and output back.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/temporary_folder.hpp"

namespace smelt_test {

/// What a finished program left.
struct outcome {
  int exit = -1;    ///< exit code; 128 + n when signal n ended the program
  std::string out;  ///< standard output
  std::string err;  ///< standard error
};

[[nodiscard]] inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A running program; the destructor ends it if it still runs.
class running_tool {
 public:
  /// Starts `program` with `arguments`; `environment` holds additions as NAME=value.
  running_tool(const std::string& program, std::vector<std::string> arguments,
               const std::vector<std::string>& environment = {}) {
    arguments.insert(arguments.begin(), program);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    const std::string out = (folder_.path() / "out").string(), err = (folder_.path() / "err").string();
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("cannot start another process");
    if (pid_ == 0) {
      const int out_file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const int err_file = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(out_file, 1);
      ::dup2(err_file, 2);
      for (const std::string& e : environment) {
        const auto equals = e.find('=');
        ::setenv(e.substr(0, equals).c_str(), e.substr(equals + 1).c_str(), 1);
      }
      ::execv(program.c_str(), argv.data());
      ::_exit(127);
    }
  }
  running_tool(const running_tool&) = delete;
  running_tool& operator=(const running_tool&) = delete;
  ~running_tool() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  void signal(int number) const { ::kill(pid_, number); }

  /// Waits until `path` exists; false when the program ended or `seconds` passed before.
  [[nodiscard]] bool wait_for_file(const std::filesystem::path& path, int seconds) {
    for (int i = 0; i < seconds * 50; ++i) {
      if (std::filesystem::exists(path)) return true;
      if (::waitpid(pid_, &status_, WNOHANG) == pid_) {
        pid_ = 0;
        return std::filesystem::exists(path);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  /// Waits for the end.
  [[nodiscard]] outcome wait() {
    if (pid_ > 0 && ::waitpid(pid_, &status_, 0) != pid_) throw std::runtime_error("cannot wait for the program");
    pid_ = 0;
    return {WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_), text_of(folder_.path() / "out"),
            text_of(folder_.path() / "err")};
  }

 private:
  temporary_folder folder_;
  pid_t pid_ = 0;
  int status_ = 0;
};

/// Runs the smelt program to its end.
[[nodiscard]] inline outcome run_tool(std::vector<std::string> arguments,
                                      const std::vector<std::string>& environment = {}) {
  return running_tool(SMELT_TOOL_PATH, std::move(arguments), environment).wait();
}

}  // namespace smelt_test
