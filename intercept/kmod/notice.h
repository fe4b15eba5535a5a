// SPDX-License-Identifier: Apache-2.0
// KernelNotice: what the kernel module reports besides DriverEvents: the tenant of each process,
// what an operator wrote into sysfs, and what the module refused to a process. Plain values, in the
// order in which the module wrote them, also relative to the DriverEvents of the same drain().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>

#include "intercept/event.h"
#include "shmctl/base/clock.h"

namespace gpushare {

// The process belongs to this tenant now. There is one for every process just before its
// ProcessOpened, and one whenever the process is moved.
struct TenantAssigned {
  ProcessId process;
  std::string tenant;
  // True for the first one of a process: inheritance or a rule chose the tenant, otherwise
  // `default`.
  bool is_opening = false;
};
// Something about this tenant was written into sysfs and must be read again. It may be gone.
struct SettingsChanged {
  enum class What {
    kSettings,  // its settings or rules were written, or it was made or removed
    kMembers,   // a process was attached to it
  };
  std::string tenant;
  What what = What::kSettings;
};
// The module refused a scheduling control of the process.
struct ControlRefused {
  ProcessId process;
  uint32_t command = 0;  // RM control number
  uint64_t repeats = 0;  // further refusals of this process that got no notice
};
// The module refused an allocation because of the tenant's memory_max.
struct MemoryRefused {
  ProcessId process;
  uint32_t instance = 0;                      // RM's device instance
  uint64_t bytes = 0;                         // what the process asked for
  uint64_t current_bytes = 0, max_bytes = 0;  // what its tenant holds on this GPU, and may hold
  uint64_t repeats = 0;                       // as above
};
// Notices of any kind were lost; everything must be read again.
struct NoticesLost {};

struct KernelNotice {
  Time time{};
  std::variant<TenantAssigned, SettingsChanged, ControlRefused, MemoryRefused, NoticesLost> what;
};
using NoticeSink = std::function<void(KernelNotice&&)>;

}  // namespace gpushare
