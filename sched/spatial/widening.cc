// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/widening.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gpushare {
namespace {

Widening::Needs larger(const Widening::Needs& one, const Widening::Needs& other) {
  return {.refused_sms = std::max(one.refused_sms, other.refused_sms),
          .stuck_sms = std::max(one.stuck_sms, other.stuck_sms)};
}

}  // namespace

std::vector<Widening::Found> Widening::step(Time now, std::span<const Seen> seen) {
  std::vector<Found> found;
  std::map<ProcessId, Known> known;
  const Nanos passed = std::min(now - std::exchange(last_look_, now), kLongestLook);
  for (const Seen& one : seen) {
    const auto before = known_.find(one.process);
    const bool is_new = before == known_.end();
    Known& own = known[one.process];
    if (!is_new) own = before->second;
    own.waited += passed;
    if (is_new || !one.waits || own.launches != one.launches) own.waited = {};
    if (!is_new && own.launches != one.launches) own.is_stuck = false;  // it got on
    own.launches = one.launches;
    const auto of_program = programs_.find(one.program);
    if (of_program != programs_.end()) own.needs = larger(own.needs, of_program->second);

    const bool is_stuck = own.waited >= kPatience && one.at_once_sms > one.has_sms;
    own.is_stuck = own.is_stuck || is_stuck;
    const Needs needs = larger(
        own.needs, {.refused_sms = one.refused_sms, .stuck_sms = is_stuck ? one.at_once_sms : 0});
    if (needs == own.needs) continue;
    found.push_back(
        {one.process, is_stuck, is_stuck ? needs.stuck_sms : needs.refused_sms, one.has_sms});
    own.needs = needs;
    if (!one.program.empty() && (of_program != programs_.end() || programs_.size() < kMostPrograms))
      programs_[std::string(one.program)] = needs;
  }
  known_ = std::move(known);
  return found;
}

Widening::Needs Widening::needs(const ProcessId& process) const {
  const auto known = known_.find(process);
  return known == known_.end() ? Needs{} : known->second.needs;
}

std::string Widening::note(const ProcessId& process) const {
  const auto known = known_.find(process);
  if (known == known_.end()) return {};
  const Needs& needs = known->second.needs;
  if (known->second.is_stuck)
    return fmt::format("a kernel that needs {} SMs at once does not end: start it again",
                       needs.stuck_sms);
  if (needs.stuck_sms != 0)
    return fmt::format("its partition is kept at {} SMs, which a kernel needs at once",
                       needs.stuck_sms);
  if (needs.refused_sms != 0)
    return fmt::format(
        "a kernel needs {} SMs at once: it runs in the whole GPU where its "
        "partition has fewer",
        needs.refused_sms);
  return {};
}

}  // namespace gpushare
