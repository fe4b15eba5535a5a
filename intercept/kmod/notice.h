// SPDX-License-Identifier: Apache-2.0
// KernelNotice: what the kernel module says besides DriverEvents: where processes belong, that an
// operator wrote into sysfs, whom it refused what. Plain values, in the order in which the module
// wrote them, also relative to the DriverEvents of the same drain().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "intercept/event.h"
#include "shmctl/base/clock.h"

namespace gpushare {

// The process belongs to this tenant now. Said of every process with its ProcessOpened (just before
// it), and whenever it is moved.
struct TenantAssigned {
  ProcessId process;
  std::string tenant;
  bool is_opening = false;  // chosen by inheritance, by a rule, or for want of one: `default`
};
// Something about this tenant was written into sysfs: read it again. It may be gone.
struct SettingsChanged {
  enum class What {
    kSettings,  // or rules; or the tenant was made or removed
    kMembers,   // a process was attached
  };
  std::string tenant;
  What what = What::kSettings;
};
struct ControlRefused {
  ProcessId process;
  uint32_t command = 0;  // RM control number
  uint64_t repeats = 0;  // further refusals of this process that got no notice
};
struct MemoryRefused {
  ProcessId process;
  uint32_t instance = 0;                      // RM's device instance
  uint64_t bytes = 0;                         // asked for
  uint64_t current_bytes = 0, max_bytes = 0;  // of its tenant on this GPU
  uint64_t repeats = 0;                       // as above
};
// Notices of any kind were lost: read everything again.
struct NoticesLost {};

struct KernelNotice {
  Time time{};
  std::variant<TenantAssigned, SettingsChanged, ControlRefused, MemoryRefused, NoticesLost> what;
};
using NoticeSink = std::function<void(KernelNotice&&)>;

}  // namespace gpushare
