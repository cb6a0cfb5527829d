// What does Ctrl-C do to a long command? The first asks it to save and end; the second ends it at once. A polite kill
// and a terminal that closes ask the same.
#pragma once

#include <csignal>

namespace smelt::tool {

namespace detail {

// A signal handler can reach nothing but a global of this type.
inline volatile std::sig_atomic_t stop_asked = 0;

extern "C" inline void ask_to_stop(int) {
  stop_asked = 1;
}

}  // namespace detail

/// Takes Ctrl-C, a polite kill and a closed terminal as requests while it lives. The system's own reaction, ending the
/// process, is back after the first of each. A hang-up that the caller has the program ignore (nohup) stays ignored.
class interrupt_guard {
 public:
  interrupt_guard() {
    detail::stop_asked = 0;
    struct sigaction reaction{};
    reaction.sa_handler = detail::ask_to_stop;
    reaction.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
    ::sigemptyset(&reaction.sa_mask);
    ::sigaction(SIGINT, &reaction, &old_int_);
    ::sigaction(SIGTERM, &reaction, &old_term_);
    ::sigaction(SIGHUP, nullptr, &old_hang_up_);
    if (old_hang_up_.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &reaction, nullptr);
  }
  interrupt_guard(const interrupt_guard&) = delete;
  interrupt_guard& operator=(const interrupt_guard&) = delete;
  ~interrupt_guard() {
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::sigaction(SIGTERM, &old_term_, nullptr);
    ::sigaction(SIGHUP, &old_hang_up_, nullptr);
  }

  /// Whether the command was asked to end.
  [[nodiscard]] bool asked() const noexcept { return detail::stop_asked != 0; }

 private:
  struct sigaction old_int_{};
  struct sigaction old_term_{};
  struct sigaction old_hang_up_{};
};

}  // namespace smelt::tool
