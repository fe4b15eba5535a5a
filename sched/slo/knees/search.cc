// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/knees/search.h"

#include <algorithm>
#include <utility>

namespace gpushare {
namespace {

using View = KneeSearch::View;

bool is_missed(const View& tenant) { return tenant.is_measured && tenant.latency > tenant.slo; }

bool is_calm(const View& tenant) { return tenant.move == SloMove::kHold && !is_missed(tenant); }

// Those that are not sampled go on as the policy says; all of them must do well.
bool does_well(const View& tenant) {
  return tenant.move != SloMove::kStarved && tenant.move != SloMove::kGrow && !is_missed(tenant);
}

// At least one, as a program says how little it works.
Nanos nanos(double seconds) {
  return std::max(Nanos(static_cast<int64_t>(seconds * 1e9)), Nanos(1));
}

}  // namespace

std::optional<KneeSearch::Sample> KneeSearch::step(Time now, std::span<const View> tenants,
                                                   uint32_t free) {
  if (search_) {
    const auto at = std::ranges::find(tenants, search_->id, &View::id);
    const bool may_go_on = at != tenants.end() && !is_missed(*at) &&
                           std::ranges::all_of(tenants, [&](const View& tenant) {
                             return tenant.id == search_->id || does_well(tenant);
                           });
    if (may_go_on && ++search_->rounds <= kMostRounds) {
      sample(now, *at);
    } else {
      give_up(now);
    }
  } else {
    calm_ = std::ranges::all_of(tenants, is_calm) ? calm_ + 1 : 0;
    if (calm_ >= kCalmRounds) start(now, tenants, free);
  }
  if (!search_) return std::nullopt;
  return Sample{search_->id, *search_->finder.next()};
}

void KneeSearch::sample(Time now, const View& tenant) {
  if (!tenant.is_measured || search_->finder.next() != tenant.groups) return;
  search_->finder.sample(tenant.groups, nanos(tenant.service));
  search_->rounds = 0;
  if (search_->finder.next()) return;
  found_ = Found{.id = tenant.id,
                 .knee = {.knee = search_->finder.knee(),
                          .widest = search_->widest,
                          .is_bounded = search_->finder.is_bounded()}};
  give_up(now);
}

void KneeSearch::start(Time now, std::span<const View> tenants, uint32_t free) {
  for (const View& tenant : tenants) {
    if (tenant.is_known || !tenant.is_measured || tenant.service <= 0) continue;
    if (const auto pause = not_before_.find(tenant.id);
        pause != not_before_.end() && now < pause->second)
      continue;
    const uint32_t widest = std::min(tenant.share + free, tenant.most);
    if (widest < 2) continue;
    search_.emplace(Search{.id = tenant.id,
                           .widest = widest,
                           .finder = KneeFinder(widest, nanos(tenant.longest_service)),
                           .rounds = 0});
    return;
  }
}

// Also after a success: what was found may turn out to be of another work soon.
void KneeSearch::give_up(Time now) {
  not_before_[search_->id] = now + kPause;
  search_.reset();
  calm_ = 0;
}

void KneeSearch::stop(Time now) {
  calm_ = 0;
  if (search_) give_up(now);
}

std::optional<KneeSearch::Found> KneeSearch::take_found() { return std::exchange(found_, {}); }

}  // namespace gpushare
