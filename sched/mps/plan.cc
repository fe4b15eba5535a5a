// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/plan.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace gpushare {
namespace {

// CUDA takes the beginning of a UUID for the whole; this many characters are taken as enough here:
// "GPU-" and eight digits.
constexpr std::size_t kShortestUuid = 12;

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    parts.push_back(part);
  }
  return parts;
}

}  // namespace

MpsPlan::Action MpsPlan::decide(Time now, const Seen& seen) {
  return seen.gpus ? with_daemon(now, seen) : without_daemon(now, seen);
}

MpsPlan::Action MpsPlan::without_daemon(Time now, const Seen& seen) {
  if (std::exchange(is_there_, false)) {
    if (std::exchange(is_quitting_, false)) {
      start_at_ = now;
    } else {
      ++deaths_;
      if (now - there_since_ >= kYoung) pause_ = Nanos{};
      pause(now);
    }
  }
  if (!wanted_) {
    state_ = MpsState::kOff;
    next_ = Time::max();
    started_at_.reset();
    return Action::kNone;
  }
  if (!seen.has_program) {
    state_ = MpsState::kMissing;
    next_ = now + kProgramLook;
    return Action::kNone;
  }
  state_ = MpsState::kStarting;
  if (started_at_) {
    next_ = now + kStartLook;
    if (now - *started_at_ < kToStart) return Action::kNone;
    started_at_.reset();
    pause(now);
  }
  next_ = start_at_;
  if (now < start_at_ || seen.is_asking) return Action::kNone;
  started_at_ = now;
  next_ = now + kStartLook;
  return Action::kStart;
}

MpsPlan::Action MpsPlan::with_daemon(Time now, const Seen& seen) {
  if (!std::exchange(is_there_, true)) {
    there_since_ = now;
    asked_.reset();
    started_at_.reset();
  }
  next_ = now + kLook;
  const bool fits = wanted_ && wanted_ == seen.gpus;
  state_ = fits ? MpsState::kRunning : MpsState::kOther;
  if (fits) is_quitting_ = false;
  if (seen.is_asking) return Action::kNone;
  if (!fits && seen.clients == 0u && now >= quit_again_at_) {
    is_quitting_ = true;
    quit_again_at_ = now + kToQuit;
    return Action::kQuit;
  }
  // Who was idle when it was asked may have clients since, and the other way round.
  const bool is_idle = fits && seen.clients == 0u;
  const Nanos pause = seen.has_fault ? kAskFaulty : is_idle ? kAskIdle : kAskBusy;
  if (asked_ && now < *asked_ + std::min(pause, pause_asked_)) return Action::kNone;
  asked_ = now;
  pause_asked_ = pause;
  return Action::kAsk;
}

void MpsPlan::start_failed(Time now) {
  started_at_.reset();
  pause(now);
}

void MpsPlan::pause(Time now) {
  start_at_ = now + pause_;
  pause_ = pause_ == Nanos{} ? kFirstPause : std::min(2 * pause_, kLongestPause);
}

std::string mps_gpus(std::vector<GpuInfo> gpus, std::size_t all) {
  std::string list;
  if (gpus.size() == all) return list;
  std::ranges::sort(gpus, {}, &GpuInfo::pci);
  for (const GpuInfo& gpu : gpus)
    if (!gpu.uuid.empty()) list += (list.empty() ? "" : ",") + gpu.uuid;
  return list;
}

bool may_be_client(const std::string& gpus, const std::optional<std::string>& visible) {
  if (gpus.empty()) return true;
  if (!visible || visible->empty()) return false;
  const std::vector<std::string_view> served = split(gpus);
  return std::ranges::all_of(split(*visible), [&](std::string_view named) {
    return named.size() >= kShortestUuid && std::ranges::any_of(served, [&](std::string_view uuid) {
             return uuid.starts_with(named);
           });
  });
}

}  // namespace gpushare
