// Who is faster? Contenders take turns in short windows of one process, each window between two measurements of the
// machine's peak, so that a slow moment of a shared machine falls on all of them alike.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace smelt::bench {

/// One way to do the work that is compared.
struct contender {
  std::string name;
  std::function<void()> warm_up;  ///< runs untimed before each window
  std::function<void()> run;      ///< the work, once
  double flops = 0;               ///< of one run
};

/// What one window measured.
struct window {
  double flop_per_second = 0;
  double peak = 0;  ///< flop/s of one core: the better of before and after, since a disturbed one only looks slower
};

/// The middle value, or the mean of the two in the middle; 0 of nothing.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/// Seconds that `count` calls of f take.
template <class F>
[[nodiscard]] double seconds_of(std::int64_t count, const F& f) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < count; ++i) f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// `rounds` windows of about `window_seconds` for every contender: result[contender][round]. The order rotates, so that
/// nobody always follows the same neighbour. peak() measures the flop/s of one core, briefly.
[[nodiscard]] inline std::vector<std::vector<window>> interleave(const std::vector<contender>& contenders, int rounds,
                                                                 double window_seconds,
                                                                 const std::function<double()>& peak) {
  std::vector<std::int64_t> repetitions;
  for (const contender& c : contenders) {
    c.warm_up();
    const double once = (std::min)({seconds_of(1, c.run), seconds_of(1, c.run), seconds_of(1, c.run)});
    repetitions.push_back((std::max)(std::int64_t{1}, std::int64_t(std::llround(window_seconds / once))));
  }
  std::vector<std::vector<window>> result(contenders.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
      const std::size_t who = (turn + std::size_t(round)) % contenders.size();
      const contender& c = contenders[who];
      c.warm_up();
      const double before = peak();
      const double seconds = seconds_of(repetitions[who], c.run);
      const double after = peak();
      result[who].push_back({c.flops * double(repetitions[who]) / seconds, (std::max)(before, after)});
    }
  }
  return result;
}

/// The median share of the peak over windows that ran on `cores` cores.
[[nodiscard]] inline double of_peak(const std::vector<window>& windows, int cores = 1) {
  std::vector<double> shares;
  for (const window& w : windows) shares.push_back(w.flop_per_second / (w.peak * cores));
  return median(shares);
}

/// The median over the rounds of how many times faster `ours` is than `theirs`, each side against its own peak.
[[nodiscard]] inline double times_faster(const std::vector<window>& ours, const std::vector<window>& theirs) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ratios.push_back(ours[i].flop_per_second / ours[i].peak / (theirs[i].flop_per_second / theirs[i].peak));
  }
  return median(ratios);
}

}  // namespace smelt::bench
