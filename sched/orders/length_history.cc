// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/length_history.h"

#include <algorithm>
#include <vector>

namespace gpushare {

void LengthHistory::add(std::string_view command, Nanos length) {
  if (length <= Nanos{}) return;
  finished_.push_back({std::string(command), length});
  if (finished_.size() > kMost) finished_.pop_front();
  std::vector<Nanos> lengths;
  lengths.reserve(finished_.size());
  for (const Finished& one : finished_) lengths.push_back(one.length);
  mix_ = LengthMix(lengths);
  ++generation_;
}

// The lower one of the two in the middle.
std::optional<Nanos> LengthHistory::median(std::string_view command) const {
  if (command.empty()) return std::nullopt;
  std::vector<Nanos> lengths;
  for (const Finished& one : finished_)
    if (one.command == command) lengths.push_back(one.length);
  if (lengths.empty()) return std::nullopt;
  const auto middle = lengths.begin() + static_cast<ptrdiff_t>((lengths.size() - 1) / 2);
  std::ranges::nth_element(lengths, middle);
  return *middle;
}

}  // namespace gpushare
