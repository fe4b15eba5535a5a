// SPDX-License-Identifier: Apache-2.0
#include "sched/spatial/widening.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpushare {

std::vector<Widening::Found> Widening::step(Time now, std::span<const Seen> seen) {
  std::vector<Found> found;
  std::map<ProcessId, Known> known;
  for (const Seen& one : seen) {
    const auto before = known_.find(one.process);
    const bool is_new = before == known_.end();
    Known& own = known[one.process];
    if (!is_new) own = before->second;
    if (is_new || !one.waits || own.launches != one.launches) own.since = now;
    if (!is_new && own.launches != one.launches) own.is_stuck = false;  // it got on
    own.launches = one.launches;
    const auto of_program = programs_.find(one.program);
    if (of_program != programs_.end()) own.sms = std::max(own.sms, of_program->second);

    const bool is_stuck = now - own.since >= kPatience && one.at_once_sms > one.has_sms;
    const uint32_t needs = std::max(one.refused_sms, is_stuck ? one.at_once_sms : 0U);
    own.is_stuck = own.is_stuck || is_stuck;
    if (needs <= own.sms) continue;
    found.push_back({one.process, is_stuck, needs, one.has_sms});
    own.sms = needs;
    if (!one.program.empty() && (of_program != programs_.end() || programs_.size() < kMostPrograms))
      programs_[std::string(one.program)] = needs;
  }
  known_ = std::move(known);
  return found;
}

uint32_t Widening::least_sms(const ProcessId& process) const {
  const auto known = known_.find(process);
  return known == known_.end() ? 0 : known->second.sms;
}

std::string Widening::note(const ProcessId& process) const {
  const auto known = known_.find(process);
  if (known == known_.end() || known->second.sms == 0) return {};
  const uint32_t sms = known->second.sms;
  return known->second.is_stuck
             ? fmt::format("a kernel that needs {} SMs at once does not end: start it again", sms)
             : fmt::format("its partition is kept at {} SMs, which a kernel needs at once", sms);
}

}  // namespace gpushare
