// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/slice_feedback.h"

#include <algorithm>
#include <cmath>

namespace gpushare {
namespace {

constexpr Nanos kShortestWindow = std::chrono::milliseconds(200);
constexpr double kFewestRounds = 8;  // in a window
// What a window's end changes is in force some milliseconds later, with many programs some tens: if
// that is in this part of the next one, this begins again, and sees one slice of each process only.
constexpr int kYoung = 4;
constexpr double kSwitchNs = 80'000;      // the hardware's switch, driver facts section 5
constexpr double kUsesSlice = 0.85;       // of its slice: a longer one would be used, too
constexpr double kUsesAll = 0.98;         // beside one turn, which the window cuts
constexpr double kComesEveryRound = 0.8;  // turns per round
constexpr double kSliceGain = 0.3;        // of the log error, per window, at first
constexpr double kSettledGain = 0.03;     // and when it has settled
constexpr double kSettling = 4;           // windows in which the gain halves, then to a third, ...
// A window cuts a turn at each of its ends, so that its measure is wrong by as much as a turn. What
// is larger is a change of the program; so is a share that is due and moves by this part.
constexpr double kChangeInTurns = 1.25;
constexpr double kChangeOfTarget = 0.01;
constexpr double kRoundGain = 0.8;
constexpr double kRoundRecovery = 0.1;  // log units per window
constexpr double kFade = 0.8;           // what is left of an unused correction after a window
const double kLargestFactor = std::log(4.0);
const double kLargestError = std::log(2.0);  // what one window may claim

double round_ns(double sum_of_slices_ns, size_t processes) {
  return sum_of_slices_ns + kSwitchNs * static_cast<double>(processes);
}

}  // namespace

void SliceFeedback::observe(Time now, std::span<const Sample> samples, double shortest_round) {
  ++call_;
  if (samples.size() < 2) {  // nobody to share with: the log is silent and slices do not matter
    window_end_ = Time::max();
    return;
  }
  if (window_end_ == Time::max()) {
    begin_window(now, samples);
    return;
  }
  ++calls_in_window_;
  const bool is_young = now < window_began_ + (window_end_ - window_began_) / kYoung;
  for (const Sample& sample : samples) {
    Account& account = account_[sample.process];
    const bool was_away = account.last_call + 1 != call_;
    const bool has_new_slice = account.slice != sample.slice;
    if (is_young && has_new_slice && !was_away) return begin_window(now, samples);
    if (was_away || has_new_slice) account.calls = 0;  // not in this window
    account.slice = sample.slice;
    account.last_call = call_;
    ++account.calls;
    account.used += sample.used;
    account.turns += sample.turns;
  }
  if (now < window_end_) return;
  close_window(now, samples, shortest_round);
  begin_window(now, samples);
}

void SliceFeedback::begin_window(Time now, std::span<const Sample> samples) {
  double slices_ns = 0;
  for (const Sample& sample : samples) {
    Account& account = account_[sample.process];
    account.last_call = call_;
    account.calls = 0;
    account.slice = sample.slice;
    account.used = Nanos::zero();
    account.turns = 0;
    slices_ns += static_cast<double>(Nanos(sample.slice).count());
  }
  const double round = round_ns(slices_ns, samples.size());
  const double rounds =
      std::max(std::ceil(static_cast<double>(kShortestWindow.count()) / round), kFewestRounds);
  calls_in_window_ = 0;
  window_began_ = now;
  window_end_ = now + Nanos(static_cast<Nanos::rep>(rounds * round));
}

void SliceFeedback::close_window(Time now, std::span<const Sample> samples, double shortest_round) {
  std::vector<Closed> all;
  all.reserve(samples.size());
  for (const Sample& sample : samples) {
    Account& account = account_[sample.process];
    if (account.calls != calls_in_window_ || account.used <= Nanos::zero()) continue;
    const double used = static_cast<double>(account.used.count());
    const double turns = std::max(account.turns, 1U);
    const double slice = static_cast<double>(Nanos(sample.slice).count());
    all.push_back({.process = sample.process,
                   .target = sample.target,
                   .used = used,
                   .turns = turns,
                   .slice = slice,
                   .uses_slice = used / turns >= kUsesSlice * slice});
    account.uses_slice = all.back().uses_slice;
  }
  correct_slices(all);
  correct_round(all, static_cast<double>((now - window_began_).count()), shortest_round);
}

void SliceFeedback::correct_slices(std::span<const Closed> all) {
  double target = 0, used = 0;
  for (const Closed& one : all) {
    if (!one.uses_slice) continue;
    target += one.target;
    used += one.used;
  }
  double mean = 0;  // of the corrections, by target: they must not drift together
  for (const Closed& one : all) {
    Account& account = account_[one.process];
    double& log_factor = account.log_factor;
    if (one.uses_slice) {
      const double share = one.target / target;
      const double error = std::log(share / (one.used / used));
      const bool has_changed = std::abs(error) * one.turns > kChangeInTurns ||
                               std::abs(share - account.share) > kChangeOfTarget * share;
      account.settled = has_changed ? 0 : account.settled + 1;
      account.share = share;
      const double gain = std::max(kSliceGain / (1 + account.settled / kSettling), kSettledGain);
      log_factor += gain * std::clamp(error, -kLargestError, kLargestError);
      mean += log_factor * one.target / target;
    } else {
      log_factor *= kFade;
    }
  }
  for (const Closed& one : all) {
    if (!one.uses_slice) continue;
    double& log_factor = account_[one.process].log_factor;
    log_factor = std::clamp(log_factor - mean, -kLargestFactor, kLargestFactor);
  }
}

void SliceFeedback::correct_round(std::span<const Closed> all, double window_ns,
                                  double shortest_round) {
  double target = 0, used = 0, turns_ns = 0;
  for (const Closed& one : all) {
    target += one.target;
    used += one.used;
    turns_ns += std::min(one.slice, one.used / one.turns);
  }
  const double rounds = window_ns / round_ns(turns_ns, all.size());
  // Decisive is who yields, or would if the round were any longer.
  bool does_anyone_yield = false;
  double worst = -kLargestError;
  for (const Closed& one : all) {
    if (one.used >= kUsesAll * (one.turns - 1) * one.slice || one.turns < kComesEveryRound * rounds)
      continue;
    does_anyone_yield = true;
    worst = std::max(worst, std::log((one.target / target) / (one.used / used)));
  }
  log_round_ += does_anyone_yield ? -kRoundGain * std::min(worst, kLargestError) : kRoundRecovery;
  log_round_ = std::clamp(log_round_, std::min(std::log(shortest_round), 0.0), 0.0);
}

double SliceFeedback::slice_factor(uint32_t process) const {
  return std::exp(account_[process].log_factor);
}

double SliceFeedback::round_factor() const { return std::exp(log_round_); }

}  // namespace gpushare
