// SPDX-License-Identifier: Apache-2.0
// SloPacks: which tenants with a target share one set of SMs (a pack), because there are not enough
// for a set each. Most services idle most of the time: alone each needs as many SMs as its target
// asks for while it works, together hardly more. Each that can have a set of its own has one: of
// all ways to share, the fewest tenants are put together that make all of them fit.
//
// Who shares goes on to share while that is enough: it is divided anew only when it no longer fits,
// and taken apart when everybody has fitted alone for kCalm decisions.
//
// Pure but for what it remembers of the last decision. Greedy: the pair that saves most, until all
// fit; of more than 32 tenants those that need least are put together first, untried.
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

class SloPacks {
 public:
  static constexpr int kCalm = 5;
  static constexpr uint32_t kNever = UINT32_MAX;

  // The groups that these (places in the call) need together to meet their targets; kNever: however
  // many, they do not. For one alone never kNever.
  using Needs = std::function<uint32_t(std::span<const uint32_t>)>;

  // `ids` names the tenants from call to call. In the order of the first members. More than
  // `available` in all: sharing does not help further.
  std::vector<SloPack> decide(std::span<const uint32_t> ids, uint32_t available,
                              const Needs& needs);

 private:
  std::vector<SloPack> kept(std::span<const uint32_t> ids, const Needs& needs) const;
  void keep(std::span<const uint32_t> ids, const std::vector<SloPack>& packs);

  std::vector<std::vector<uint32_t>> shared_;  // ids of each pack of several
  int fitted_alone_ = 0;                       // decisions in a row
};

}  // namespace gpushare
