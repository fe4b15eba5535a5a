// SPDX-License-Identifier: Apache-2.0
// foreign_control: freezes all channels of another process, or sets its time slices, as the driver
// lets every process do where the kernel module does not refuse it. It runs on the real driver and,
// with GPUSHARE_SIM, on the simulated GPU. However it ends, short of SIGKILL, it thaws as often as
// it froze and sets the slices that it found.
#include <signal.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tests/attacks/open_gpu.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

volatile sig_atomic_t is_stopped = 0;

struct Settings {
  uint64_t victim = 0, rounds = 1, pause_ms = 200, hold_ms = 1000, slice_us = 0;

  explicit Settings(Flags& flags) {
    flags.add("--victim", &victim, "its pid", "--rounds", &rounds, "how often", "--pause-ms",
              &pause_ms, "between rounds", "--hold-ms", &hold_ms,
              "how long to wait before undoing it", "--slice-us", &slice_us,
              "the slice to set, 0: freeze");
    flags.parse();
    if (victim == 0) flags.fail("--victim is missing");
  }
};

int64_t now_in_ns() { return MonotonicClock().now().time_since_epoch().count(); }

void wait_ms(uint64_t ms) {
  for (; ms > 0 && is_stopped == 0; --ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// What it has done to its victim; the end undoes it.
class Attack {
 public:
  Attack(Gpu& gpu, std::vector<DriverEvent> found) : gpu_(gpu) {
    for (const DriverEvent& event : found) {
      if (const auto* channel = std::get_if<ChannelCreated>(&event.what))
        channels_.push_back({channel->client, channel->channel});
      if (const auto* group = std::get_if<GroupCreated>(&event.what))
        groups_.push_back({event.process, group->fd, group->client, group->group});
    }
  }
  ~Attack() {
    for (; freezes_ > 0; --freezes_) (void)gpu_.thaw(0, channels_);
    for (const auto& [index, slice] : slices_) (void)gpu_.set_slice(groups_[index], slice);
  }
  Attack(const Attack&) = delete;

  std::size_t channels() const { return channels_.size(); }
  Result<> freeze() {
    ++freezes_;
    return gpu_.freeze(0, channels_);
  }
  Result<> set_slices(Micros slice) {
    Result<> done;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const Result<Micros> own = gpu_.slice(groups_[i]);
      if (own) slices_.try_emplace(i, *own);
      if (Result<> set = gpu_.set_slice(groups_[i], slice); !set) done = set;
    }
    return done;
  }
  // The slice of the first group now.
  Micros slice() const {
    return groups_.empty() ? Micros(0) : gpu_.slice(groups_.front()).value_or(Micros(0));
  }

 private:
  Gpu& gpu_;
  std::vector<ChannelRef> channels_;
  std::vector<GroupRef> groups_;
  std::map<std::size_t, Micros> slices_;  // that the victim had
  int freezes_ = 0;
};

int run(const Settings& s) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::signal(signal, [](int) { is_stopped = 1; });
  auto gpu = open_gpu();
  if (!gpu) return fmt::print(stderr, "{}\n", gpu.error().message()), 1;
  auto found = (*gpu)->attach(static_cast<pid_t>(s.victim))->finish();
  if (!found) return fmt::print(stderr, "{}\n", found.error().message()), 1;
  Attack attack(**gpu, std::move(*found));
  if (attack.channels() == 0) return fmt::print(stderr, "it has no channels\n"), 1;
  for (uint64_t i = 0; i < s.rounds && is_stopped == 0; ++i) {
    if (i > 0) wait_ms(s.pause_ms);
    const auto slice = Micros(static_cast<int64_t>(s.slice_us));
    const Result<> done = s.slice_us > 0 ? attack.set_slices(slice) : attack.freeze();
    JsonLine()
        .add("did_ns", now_in_ns())
        .add("channels", attack.channels())
        .add("is_done", done.has_value())
        .add("error", done ? "" : done.error().message())
        .print();
  }
  wait_ms(s.hold_ms);
  JsonLine().add("undoes_ns", now_in_ns()).add("slice_us", attack.slice().count()).print();
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("foreign_control", "freezes another process's channels, or sets its slices.")
