// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/length_history.h"

#include <algorithm>
#include <ranges>
#include <utility>
#include <vector>

namespace gpushare {

void LengthHistory::add(Finished job) {
  if (job.length <= Nanos{}) return;
  finished_.push_back(std::move(job));
  ++counts_[finished_.back().user];
  count_median(finished_.back().command);
  if (finished_.size() > kMost) forget_one();
  std::vector<Nanos> lengths;
  lengths.reserve(finished_.size());
  for (const Finished& one : finished_) lengths.push_back(one.length);
  mix_ = LengthMix(lengths);
  ++generation_;
}

void LengthHistory::forget_one() {
  const auto most =
      std::ranges::max_element(counts_, {}, [](const auto& one) { return one.second; });
  const auto is_old = [&](const Finished& one) {
    return one.arrived < finished_.back().arrived - kOld;
  };
  auto gone = std::ranges::find_if(finished_, is_old);
  if (gone == finished_.end()) gone = std::ranges::find(finished_, most->first, &Finished::user);
  const Finished last = std::move(*gone);
  finished_.erase(gone);
  if (--counts_[last.user] == 0) counts_.erase(last.user);
  count_median(last.command);
}

// The upper one of the two in the middle: runs that were cut off seem short.
void LengthHistory::count_median(const std::string& command) {
  if (command.empty()) return;
  std::vector<Nanos> lengths;
  for (const Finished& one : std::views::reverse(finished_)) {
    if (one.command == command) lengths.push_back(one.length);
    if (lengths.size() == kMostOfCommand) break;
  }
  if (lengths.empty()) {
    medians_.erase(command);
    return;
  }
  const auto middle = lengths.begin() + static_cast<ptrdiff_t>(lengths.size() / 2);
  std::ranges::nth_element(lengths, middle);
  medians_[command] = *middle;
}

std::optional<Nanos> LengthHistory::median(std::string_view command) const {
  const auto known = medians_.find(command);
  if (known == medians_.end()) return std::nullopt;
  return known->second;
}

}  // namespace gpushare
