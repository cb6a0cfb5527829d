// How far is a run? One line on standard error, renewed in place on a terminal, now and then otherwise.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>

#include "number.hpp"
#include "table.hpp"

namespace smelt::tool {

/// Reports steps of one run: rate and remaining time are those of this process, whatever was done before.
class progress {
 public:
  progress(std::string name, std::int64_t done, std::int64_t steps)
      : name_(std::move(name)), first_(done), steps_(steps), terminal_(::isatty(STDERR_FILENO) == 1) {}
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  ~progress() { end_line(); }

  /// Step `step` is done; `tokens_per_second` is its rate, `loss` its loss in nats a token.
  void show(std::int64_t step, double loss, double tokens_per_second) {
    const auto now = clock::now();
    const double pause = terminal_ ? 0.2 : 5.0;
    if (step < steps_ && shown_ && std::chrono::duration<double>(now - last_).count() < pause) return;
    last_ = now;
    shown_ = true;
    const double spent = std::chrono::duration<double>(now - begin_).count();
    const double left = spent * static_cast<double>(steps_ - step) / static_cast<double>(step - first_);
    write(name_ + "  step " + grouped(step) + "/" + grouped(steps_) + "  " +
          fixed(100.0 * static_cast<double>(step) / static_cast<double>(steps_), 0) + "%  loss " + fixed(loss, 3) +
          "  " + compact(tokens_per_second) + " tokens/s  ETA " + duration(left));
  }

  /// `done` of the steps are done, each of them like the others.
  void show(std::int64_t done) {
    const auto now = clock::now();
    if (std::chrono::duration<double>(now - last_).count() < (terminal_ ? 0.2 : 5.0)) return;
    last_ = now;
    const double spent = std::chrono::duration<double>(now - begin_).count();
    const double left = spent * static_cast<double>(steps_ - done) / static_cast<double>(done - first_);
    write(name_ + "  " + grouped(done) + "/" + grouped(steps_) + "  ETA " + duration(left));
  }

  /// A phase without steps, such as the final evaluation.
  void phase(const std::string& what) { write(name_ + "  " + what); }

  /// A message that stays, on a line of its own.
  void note(const std::string& message) {
    end_line();
    std::cerr << "smelt: note: " << message << "\n";
  }

 private:
  using clock = std::chrono::steady_clock;

  void write(const std::string& line) {
    if (!terminal_) {
      std::cerr << line << "\n";
      return;
    }
    const std::size_t width = characters(line);
    std::cerr << "\r" << line << std::string(width < width_ ? width_ - width : 0, ' ') << std::flush;
    width_ = width;
  }
  void end_line() {
    if (width_ > 0) std::cerr << "\n";
    width_ = 0;
  }

  std::string name_;
  std::int64_t first_;
  std::int64_t steps_;
  bool terminal_;
  clock::time_point begin_ = clock::now();
  clock::time_point last_ = begin_;
  bool shown_ = false;
  std::size_t width_ = 0;
};

}  // namespace smelt::tool
