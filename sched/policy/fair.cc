// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/fair.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sched/policy/percent_partitions.h"
#include "sched/policy/shares.h"
#include "shmctl/plane/layout.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr Micros kBestEffort{1};
constexpr double kLoneSlack = 4;               // how much less than the round a lone one may keep
constexpr double kLongestRoundUs = 1'000'000;  // unless the minimum slices of all need more
constexpr double kSliceTolerance = 0.02;       // a smaller change is not worth a driver call
constexpr Nanos kShortestWait = 500us;
constexpr int kLooksPerPeriod = 20;     // at a bucket that is nearly empty
constexpr double kMostSwitching = 0.5;  // of the GPU's time; the shortest slices make it 0.2

void wake_in(Plan& plan, Time now, Nanos delay) {
  plan.next = std::min(plan.next, now + std::max(delay, kShortestWait));
}

// Snapshots are nearly always in order already, and to see that is cheaper.
template <class Jobs, class Key>
void sort(Jobs& jobs, const Key& key) {
  if (!std::ranges::is_sorted(jobs, {}, key)) std::ranges::sort(jobs, {}, key);
}

}  // namespace

FairOptions FairOptions::of(const PolicyOptions& options) {
  FairOptions values{.min_slice = Micros(options["min_slice_us"]),
                     .round_target = std::chrono::milliseconds(options["round_target_ms"]),
                     .idle_turn = std::chrono::milliseconds(options["idle_turn_ms"])};
  if (options.has("lend_after_ms"))
    values.lend_after = std::chrono::milliseconds(options["lend_after_ms"]);
  return values;
}

std::optional<PolicyMistake> check_fair(const PolicyOptions& options) {
  const FairOptions values = FairOptions::of(options);
  if (values.min_slice <= values.round_target) return std::nullopt;
  return PolicyMistake{"min_slice_us", "must not be above round_target_ms"};
}

FairPolicy::FairPolicy(const FairOptions& options)
    : options_(options),
      tenant_gate_(kMaxTenants),
      process_gate_(kMaxProcesses),
      turns_(kMaxProcesses, options.idle_turn),
      feedback_(kMaxProcesses),
      last_seen_(kMaxProcesses),
      tenants_(kMaxTenants) {}

Plan FairPolicy::plan(const Snapshot& snapshot) {
  Plan plan;
  collect(snapshot);
  apply_caps(snapshot.now, plan);
  place_classes();
  divide_foreground(std::clamp(snapshot.gpu.switching, 0.0, kMostSwitching));
  correct(snapshot.now, plan);
  cut_slices();
  run_background(snapshot.now, plan);
  plan.decisions.reserve(jobs_.size());
  for (const Job& job : jobs_) {
    if (!job.view->can_control) continue;
    Micros slice(std::llround(job.slice_us));
    const double change = std::abs(job.slice_us - static_cast<double>(job.view->slice.count()));
    const bool is_near = change <= kSliceTolerance * job.slice_us;
    if (is_near && job.view->slice >= options_.min_slice) slice = job.view->slice;
    plan.decisions.push_back(
        {.process = job.view->id, .slice = slice, .freeze = job.freeze, .target = job.target});
  }
  if (snapshot.gpu.is_spatial)
    plan.partitions = partitions_by_percent(snapshot, options_.lend_after);
  return plan;
}

// Sorted by id, so that the order of the input cannot matter. A process whose tenant or slot is not
// there is left alone.
void FairPolicy::collect(const Snapshot& snapshot) {
  std::ranges::fill(tenants_, nullptr);
  for (const TenantView& tenant : snapshot.tenants) {
    if (tenant.id >= tenants_.size()) continue;
    tenants_[tenant.id] = &tenant;
    tenant_gate_.update(tenant.id, tenant.cap);
  }
  jobs_.clear();
  ++call_;
  for (const ProcessView& process : snapshot.processes) {
    if (!process.has_context || process.id >= kMaxProcesses || process.tenant >= tenants_.size())
      continue;
    const TenantView* tenant = tenants_[process.tenant];
    if (!tenant) continue;
    if (std::exchange(last_seen_[process.id], call_) + 1 != call_) feedback_.forget(process.id);
    Job& job = jobs_.emplace_back(Job{.view = &process, .tenant = tenant});
    if (process.is_frozen_by_user || tenant->is_frozen_by_user) {
      job.place = Place::kFrozenByUser;
      job.freeze = FreezeReason::kUser;
      job.slice_us = static_cast<double>(process.slice.count());
      job.target = 0;
    } else {
      job.is_active = process.wants_gpu;
    }
  }
  sort(jobs_, [](const Job& job) { return job.view->id; });
}

void FairPolicy::apply_caps(Time now, Plan& plan) {
  const bool is_alone = std::ranges::count_if(jobs_, &Job::is_active) <= 1;
  for (Job& job : jobs_) {
    const ProcessView& process = *job.view;
    const bool is_shut = process_gate_.update(process.id, process.cap);
    job.is_capped_out = is_shut || tenant_gate_.is_shut(job.tenant->id);
    if (job.place == Place::kFrozenByUser) continue;
    // A process without work uses nothing: freezing it can wait until it has some.
    if (job.is_capped_out && (job.is_active || process.is_frozen)) {
      job.freeze = FreezeReason::kCap;
    }
    if (!job.is_active && !process.is_frozen) continue;
    for (const auto* cap : {&job.tenant->cap, &process.cap}) {
      if (!*cap) continue;
      const bool is_own = cap == &process.cap;
      if (is_own ? is_shut : tenant_gate_.is_shut(job.tenant->id)) {
        wake_in(plan, now, until_resume(**cap));
      } else if (const Nanos left = until_empty(**cap); left != Nanos::max()) {
        // For a process that is alone this is the very instant. Beside others the bucket lasts
        // longer and hovers near empty: what is overdrawn until the next look is repaid, so looking
        // less often costs smoothness within a period, not accuracy, and saves most of the work.
        wake_in(plan, now, is_alone ? left : std::max(left, (*cap)->period / kLooksPerPeriod));
      }
    }
  }
}

// Who may wake counts, not only who has work: a request that ends a pause must find the slices of
// all others short already, because nobody is told of it before the GPU is.
void FairPolicy::place_classes() {
  Priority lowest = Priority::kIdle;
  for (const Job& job : jobs_)
    if (job.place != Place::kFrozenByUser) lowest = std::max(lowest, job.tenant->priority);
  for (Job& job : jobs_) {
    if (job.place == Place::kFrozenByUser) continue;
    job.place = job.tenant->priority >= lowest ? Place::kForeground : Place::kBackground;
  }
}

// Beside weights alone the time that there is makes no difference: slices are in their ratio.
void FairPolicy::divide_foreground(double switching) {
  active_.clear();
  for (Job& job : jobs_) {
    if (job.place == Place::kForeground && job.is_active) active_.push_back(&job);
  }
  sort(active_, [](const Job* job) { return std::pair(job->tenant->id, job->view->id); });
  divide_among_tenants(1, &Job::target);
  const bool has_cap = std::ranges::any_of(
      active_, [](const Job* job) { return job->tenant->cap || job->view->cap; });
  if (has_cap) return divide_among_tenants(1 - switching, &Job::aim);
  for (Job* job : active_) job->aim = job->target;
}

// Tenants by weight and cap, then each tenant's processes equally up to their own caps.
void FairPolicy::divide_among_tenants(double time, double Job::* share) {
  const auto for_each_tenant = [this](auto&& visit) {
    for (size_t begin = 0, end = 0; begin < active_.size(); begin = end) {
      while (end < active_.size() && active_[end]->tenant == active_[begin]->tenant) ++end;
      visit(std::span(active_).subspan(begin, end - begin));
    }
  };
  const auto ceiling = [](const auto& view) { return view.cap ? view.cap->fraction : 1.0; };

  std::vector<Demand> demands;
  active_weight_ = 0;
  for_each_tenant([&](std::span<Job* const> jobs) {
    double of_processes = 0;
    for (const Job* job : jobs) of_processes += ceiling(*job->view);
    const TenantView& tenant = *jobs.front()->tenant;
    demands.push_back({.weight = tenant.weight,
                       .ceiling = std::min({ceiling(tenant), tenant.ceiling, of_processes})});
    active_weight_ += tenant.weight;
  });
  std::vector<double> shares(demands.size());
  divide(time, demands, shares);

  size_t n = 0;
  for_each_tenant([&](std::span<Job* const> jobs) {
    demands.clear();
    for (const Job* job : jobs) demands.push_back({.weight = 1, .ceiling = ceiling(*job->view)});
    std::vector<double> parts(jobs.size());
    divide(shares[n++], demands, parts);
    for (size_t i = 0; i < jobs.size(); ++i) jobs[i]->*share = parts[i];
  });
}

// Only a process that could run all the time since the last call tells something of its slice.
void FairPolicy::correct(Time now, Plan& plan) {
  std::vector<SliceFeedback::Sample> samples;
  for (const Job& job : jobs_) {
    if (job.place != Place::kForeground || !job.is_active || !job.view->can_control) continue;
    if (job.view->is_frozen || job.is_capped_out) continue;
    samples.push_back({.process = job.view->id,
                       .target = job.aim,
                       .slice = job.view->slice,
                       .used = job.view->used - job.view->returned,
                       .turns = job.view->turns});
  }
  double smallest = 1;
  for (const Job* job : active_) {
    if (feedback_.uses_slice(job->view->id)) smallest = std::min(smallest, job->aim);
  }
  const double shortest_us = static_cast<double>(options_.min_slice.count()) / smallest;
  feedback_.observe(now, samples, shortest_us / target_round_us());
  plan.next = std::min(plan.next, feedback_.window_end());
}

// To set a slice ends the turn of the process that is on the GPU and takes 0.35 ms of the agent
// (H200), and for a process that is alone in the foreground a slice of this order is as good as the
// whole round. So a process whose only neighbour is frozen and thawed repeatedly is not disturbed.
void FairPolicy::keep_lone_slice() {
  if (active_.size() != 1) return;
  Job& lone = *active_.front();
  const auto present = static_cast<double>(lone.view->slice.count());
  if (present <= lone.slice_us && present >= lone.slice_us / kLoneSlack) lone.slice_us = present;
}

void FairPolicy::cut_slices() {
  const double min_us = static_cast<double>(options_.min_slice.count());
  double sum = 0, smallest = 1;
  for (const Job* job : active_) sum += job->aim * feedback_.slice_factor(job->view->id);
  for (Job* job : active_) {
    job->slice_us = job->aim * feedback_.slice_factor(job->view->id) / sum;
    // A process that yields early gains nothing from a longer slice, and makes no other wait.
    if (feedback_.uses_slice(job->view->id)) smallest = std::min(smallest, job->slice_us);
  }
  const double longest = std::max(kLongestRoundUs, min_us * static_cast<double>(active_.size()));
  const double round =
      std::max(target_round_us() * feedback_.round_factor(), std::min(min_us / smallest, longest));
  for (Job* job : active_) job->slice_us = std::max(job->slice_us * round, min_us);
  keep_lone_slice();

  // A process without work takes no part, but finds the slice of its weight when it wakes.
  std::vector<uint32_t> active_processes(tenants_.size());
  for (const Job* job : active_) ++active_processes[job->tenant->id];
  for (Job& job : jobs_) {
    if (job.place != Place::kForeground || job.is_active) continue;
    const double weight = job.tenant->weight;
    const uint32_t siblings = active_processes[job.tenant->id];
    const double share =
        weight / (siblings == 0 ? active_weight_ + weight : active_weight_) / (siblings + 1);
    job.slice_us = std::max(share * target_round_us(), min_us);
  }
}

void FairPolicy::run_background(Time now, Plan& plan) {
  std::vector<uint32_t> active_processes(tenants_.size());
  for (const Job& job : jobs_) {
    if (job.place == Place::kBackground && job.is_active) ++active_processes[job.tenant->id];
  }
  std::vector<BackgroundTurns::Candidate> candidates;
  for (const Job& job : jobs_) {
    if (job.place != Place::kBackground || !job.view->can_control || job.is_capped_out) continue;
    if (job.view->is_held) continue;
    const double siblings = std::max(active_processes[job.tenant->id], 1U);
    candidates.push_back({.process = job.view->id,
                          .priority = job.tenant->priority,
                          .weight = job.tenant->weight / siblings,
                          .wants_gpu = job.is_active,
                          .used = job.view->used - job.view->returned});
  }
  const BackgroundTurns::Turn turn = turns_.next(now, candidates);
  if (active_.empty()) set_background_targets(candidates);
  for (Job& job : jobs_) {
    if (job.place != Place::kBackground) continue;
    const bool is_holder = turn.holder == job.view->id;
    // An idle process that is not frozen must not have 1 us: it may wake beside the holder.
    const bool waits = job.is_active || job.freeze != FreezeReason::kNone;
    job.slice_us =
        static_cast<double>((is_holder || waits ? kBestEffort : options_.min_slice).count());
    if (!is_holder && job.is_active && job.freeze == FreezeReason::kNone) {
      job.freeze = FreezeReason::kTurn;
    }
  }
  if (turn.is_contended) {
    plan.needs_fast_tick = true;
    plan.next = std::min(plan.next, turn.ends);
    plan.freezes_first =
        std::ranges::any_of(jobs_, [](const Job& job) { return job.place == Place::kForeground; });
  }
}

// What is left for the background is known only when that is the whole GPU. Then it belongs to the
// highest class in the background.
void FairPolicy::set_background_targets(std::span<const BackgroundTurns::Candidate> candidates) {
  Priority highest = Priority::kIdle;
  for (const auto& candidate : candidates) {
    if (candidate.wants_gpu) highest = std::max(highest, candidate.priority);
  }
  const auto has_share = [highest](const BackgroundTurns::Candidate& candidate) {
    return candidate.wants_gpu && candidate.priority == highest;
  };
  double weight = 0;
  for (const auto& candidate : candidates) weight += has_share(candidate) ? candidate.weight : 0;
  auto candidate = candidates.begin();
  for (Job& job : jobs_) {
    if (candidate == candidates.end()) return;
    if (job.view->id != candidate->process) continue;
    if (has_share(*candidate)) {
      const double of_tenant = candidate->weight / job.tenant->weight;  // one of its processes
      const double cap = job.tenant->cap ? job.tenant->cap->fraction : 1;
      job.target =
          std::min(candidate->weight / weight, std::min(cap, job.tenant->ceiling) * of_tenant);
    }
    ++candidate;
  }
}

double FairPolicy::target_round_us() const {
  return std::chrono::duration<double, std::micro>(options_.round_target).count();
}

}  // namespace gpushare
