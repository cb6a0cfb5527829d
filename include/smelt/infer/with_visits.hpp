// What is a trained model that visits its loop another number of times? The same weights under another spec.
#pragma once

#include <smelt/core/error.hpp>
#include <smelt/spec/schedule.hpp>
#include <smelt/spec/spec.hpp>
#include <string>

namespace smelt {

namespace detail {

/// What keeps a visit by `plan` from being repeated or left out: a weight of its own. Empty where nothing does.
[[nodiscard]] inline std::string weights_of_a_visit(const visit_plan& plan) {
  std::string weights;
  const auto add = [&](bool has, const char* what) {
    if (has) weights += (weights.empty() ? "" : ", ") + std::string(what);
  };
  add(plan.learned, "a learned coefficient");
  add(plan.own_attention, "attention of its own");
  add(plan.compression > 1 && plan.encoder != encoder_kind::mean, "a learned encoder");
  add(plan.compression > 1 && plan.writeback != writeback_kind::direct, "a learned writeback");
  add(is_narrow(plan), "projections of the stream");
  return weights;
}

}  // namespace detail

/// The spec of a trained model whose loop is visited `count` times instead: every visit follows the plan that all of
/// them were trained with, whose coefficient stays as it is. Its weights are those of `trained`. Throws
/// errc::invalid_argument for a model without a loop, for one whose visits follow different plans or have weights of
/// their own, and for a count that is not from 1 to max_visits.
[[nodiscard]] inline spec with_visits(const spec& trained, int count) {
  const auto refuse = [](const std::string& why) -> error {
    return {errc::invalid_argument, "another number of visits needs " + why};
  };
  if (span_of(trained).count == 0) throw refuse("a looped model, found one without a loop");
  const visit_list& list = trained.loop.visits;
  if (!is_uniform(list))
    throw refuse("visits that all follow one plan, found " + std::to_string(list.runs()) +
                 " plans, one behind another");
  if (const std::string own = detail::weights_of_a_visit(list[0]); !own.empty())
    throw refuse("visits without weights of their own, found " + own + " in each");
  if (count < 1 || count > max_visits)
    throw refuse("from 1 to " + std::to_string(max_visits) + " of them, found " + std::to_string(count));
  spec other = trained;
  other.loop.visits = visits(count, list[0]);
  return other;
}

}  // namespace smelt
