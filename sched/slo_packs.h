// SPDX-License-Identifier: Apache-2.0
// SloPacks: which tenants with a target share one set of SMs (a pack), because there are not enough
// for a set each. Most services idle most of the time: alone each needs as many SMs as its target
// asks for while it works, together hardly more. Each that can have a set of its own has one; else
// the pair that saves most is put together, again and again, until all fit; and then whoever is
// better off in another pack goes there.
//
// Who shares goes on to share: packs are made anew only when that makes all fit which else do not,
// and taken apart when everybody has fitted alone for kCalm decisions. Every kReview decisions
// those go to another pack who save two groups or more there. Whoever cannot share is put together
// with others only when there are more sets than groups.
//
// Pure but for what it remembers of the last decision. Of more than 32 tenants those that need
// least are put together first, without trying every pair; so a decision takes milliseconds at
// most.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace gpushare {

struct SloPack {
  std::vector<uint32_t> members;  // places in the call, ascending; at least one
  uint32_t demand = 0;            // groups
};

// What tenants need, by their places in the call.
struct PackNeeds {
  static constexpr uint32_t kNever = UINT32_MAX;

  // Groups to meet its target alone; what it can have at most when none are enough. Never kNever.
  std::function<uint32_t(uint32_t)> alone;
  // The same for two and more together; kNever: however many there are, one misses its target.
  std::function<uint32_t(std::span<const uint32_t>)> together;
  std::function<bool(uint32_t)> can_share;
};

class SloPacks {
 public:
  static constexpr int kCalm = 5, kReview = 10;

  // `ids` names the tenants from call to call. `available` >= 1: groups for all of them, and so the
  // most packs. In the order of the first members. More than `available` in all: sharing does not
  // help further. `counts`: a decision on new measurements, of those that kCalm is about.
  std::vector<SloPack> decide(std::span<const uint32_t> ids, uint32_t available,
                              const PackNeeds& needs, bool counts = true);

 private:
  std::vector<SloPack> kept(std::span<const uint32_t> ids, uint32_t available,
                            const PackNeeds& needs) const;
  void force(std::span<const uint32_t> ids, uint32_t available, std::vector<SloPack>& packs) const;
  void keep(std::span<const uint32_t> ids, const std::vector<SloPack>& packs);

  std::vector<std::vector<uint32_t>> shared_;  // ids of each pack of several
  int fitted_alone_ = 0;                       // decisions in a row
  int until_review_ = kReview;                 // decisions that count
};

}  // namespace gpushare
