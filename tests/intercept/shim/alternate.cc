// SPDX-License-Identifier: Apache-2.0
#include "tests/intercept/shim/alternate.h"

#include <fmt/core.h>

#include <algorithm>

#include "tests/workloads/common/quantiles.h"

namespace gpushare::test {

// The processes whose iterations are known.
std::vector<Alternation::Player> Alternation::players() const {
  std::vector<Player> all;
  for (const ProcessId& process : host_.processes()) {
    ShimSlot* slot = host_.find(process);
    const auto known = ShimHost::iterations(*slot);
    if (!known || known->begun == 0) continue;
    if (known->source == ShimSource::kNone && slot->iterations.waiting.load() == 0) continue;
    all.push_back({process, slot, *known, slot->iterations.waiting.load() != 0});
  }
  return all;
}

void Alternation::let_in(const Player& next, Time now) {
  turn_ = next.process;
  begun_at_turn_ = next.known.begun;
  let_in_ = now;
  is_awaited_ = true;
  ++turns_;
  ShimHost::set_run_until(*next.slot, next.known.begun + iterations_);
}

void Alternation::step(Time now) {
  const std::vector<Player> all = players();
  if (all.size() < 2) {  // there is no other program to take turns with
    for (const Player& each : all)
      if (each.slot->iterations.run_until.load() != 0) ShimHost::set_run_until(*each.slot, 0);
    has_begun_ = false;
    return;
  }
  // A program that has just come runs to its next boundary.
  for (const Player& each : all)
    if (each.slot->iterations.run_until.load() == 0)
      ShimHost::set_run_until(*each.slot, each.known.begun);
  if (!has_begun_) {
    if (!std::ranges::all_of(all, &Player::is_waiting)) return;
    has_begun_ = true;
    stood_ns_ = 0;
    let_in(all.front(), now);
    return;
  }
  const auto mine = std::ranges::find(all, turn_, &Player::process);
  if (mine == all.end()) {  // it has ended, or does something else now
    stood_ns_ = 0;
    let_in(all.front(), now);
    return;
  }
  const uint64_t made = mine->known.begun - begun_at_turn_;
  if (is_awaited_ && made > 0) {
    is_awaited_ = false;
    note_gap(mine->known, made);
  }
  const bool is_over = mine->is_waiting && made > 0, is_late = now - let_in_ > kLongest;
  if (!is_over && !is_late) return;
  wrong_length_ += is_over && made != iterations_ ? 1 : 0;
  overrun_ += is_late ? 1 : 0;
  if (!is_over) ShimHost::set_run_until(*mine->slot, mine->known.begun);
  stood_ns_ = is_over ? mine->slot->iterations.waiting_since_ns.load() : 0;
  let_in(mine + 1 == all.end() ? all.front() : *(mine + 1), now);
}

// If several iterations began between two looks, only the begin of the last one is known.
void Alternation::note_gap(const PublishedIterations& known, uint64_t made) {
  if (stood_ns_ == 0) return;
  if (made > 1) {
    ++unseen_;
    return;
  }
  gaps_us_.push_back(static_cast<double>(known.began_ns - stood_ns_) / 1000);
}

std::string Alternation::report() const {
  std::string text = fmt::format(
      "{{\"turns\":{},\"iterations_each\":{},\"wrong_length\":{},\"overrun\":{},\"unseen\":{},"
      "\"gaps\":{}",
      turns_, iterations_, wrong_length_, overrun_, unseen_, gaps_us_.size());
  if (!gaps_us_.empty()) {
    const workloads::Quantiles gaps(gaps_us_);
    text += fmt::format(",\"gap_p50_us\":{:.1f},\"gap_p99_us\":{:.1f},\"gap_max_us\":{:.1f}",
                        gaps.at(0.5), gaps.at(0.99), gaps.max());
  }
  return text + "}";
}

}  // namespace gpushare::test
