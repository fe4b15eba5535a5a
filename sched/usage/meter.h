// SPDX-License-Identifier: Apache-2.0
// UsageMeter: turns looks at the control plane into samples of the usage history. Pure; one thread.
//
// Counters are taken as they are: what a tenant's counter has gained over those of its processes
// that were seen is its own, without a user. Times in a state are those from one look to the next.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "shmctl/plane/snapshot.h"
#include "shmctl/usage/store.h"

namespace gpushare {

class UsageMeter {
 public:
  // A stop that was shorter is not listed; fewer than this many of one sample are, the longest.
  static constexpr uint64_t kLeastFreezeMs = 1000;
  static constexpr size_t kMostFreezes = 8;
  // A process that makes its context anew is not published meanwhile, and its account goes on (the
  // agent keeps it for 1.5 s), so a counter is known for so long without being seen.
  static constexpr Nanos kUnseen = std::chrono::seconds(3);

  // `monotonic`: when the snapshot was taken; `wall_ms`: the same instant, since 1970. The first
  // look only says where the counters are.
  void look(const PlaneSnapshot& snapshot, Time monotonic, int64_t wall_ms);

  // What was had since the last call, for the file; start is left to the caller.
  UsageWrite take();

 private:
  struct Counters {
    uint64_t used_ns = 0, throttled_ns = 0;
    Time seen{};
  };
  struct Freeze {
    UsageFreeze freeze;
    bool is_seen = false;
  };
  using ProcessOnGpu = std::tuple<int32_t, uint64_t, uint32_t>;  // pid, start_ticks, gpu
  using TenantOnGpu = std::pair<std::string, uint32_t>;

  struct Sums {  // in ns, so that nothing is lost between samples
    int64_t used = 0, entitled = 0, waiting = 0, throttled = 0, stopped = 0;
  };

  void look_at_processes(const PlaneSnapshot& snapshot, int64_t passed_ns, Time monotonic,
                         int64_t wall_ms);
  uint32_t class_of(std::string_view tenant) const;
  void look_at_tenants(const PlaneSnapshot& snapshot, int64_t passed_ns);
  void end_freezes();

  bool has_looked_ = false;
  Time last_{};
  int64_t watched_ns_ = 0;
  std::map<ProcessOnGpu, Counters> processes_;
  std::map<ProcessOnGpu, Freeze> frozen_;
  std::map<TenantOnGpu, Counters> tenants_;
  std::map<TenantOnGpu, int64_t> of_processes_;           // GPU time in this look
  std::map<std::string, Priority, std::less<>> classes_;  // settings of the tenants, in this look
  std::map<UsageSeries, Sums> sums_;
  std::map<UsageSeries, UsageAmounts> latencies_;
  // Of those that have a latency: what is left of an iteration, in millionths of a thousandth.
  std::map<UsageSeries, uint64_t> begun_;
  std::map<UsageJob, Sums> jobs_;
  std::vector<UsageFreeze> freezes_;
  std::map<uint32_t, UsageGpu> gpus_;
};

}  // namespace gpushare
