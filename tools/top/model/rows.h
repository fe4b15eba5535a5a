// SPDX-License-Identifier: Apache-2.0
// Which lines gpushare-top's list has, and in which order: processes, or a tree of tenants, jobs
// and processes. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shmctl/plane/snapshot.h"
#include "tools/view/process_table.h"

namespace gpushare {

enum class Grouping : uint8_t { kNone, kTenants, kJobs };

// What one `gpushare run` started, or a process that nobody started so, on all of its GPUs.
struct JobKey {
  uint32_t run = 0;
  pid_t pid = 0;  // of a job with run 0
  auto operator<=>(const JobKey&) const = default;
};
JobKey job_of(const ProcessRecord& process);
std::string job_name(const JobKey& job);  // "run-4711", "pid-4712"

// How it shares the GPU: "weight 300, cap 40%, high".
std::string sharing_text(const TenantRecord& tenant);

// A line of the list is a process or, in a tree, a tenant or a job above its processes. Tenants
// that are below another one (team/job) follow it, and it counts what they have with its own. A
// tenant has a line for each GPU on which target times decide what it has, and otherwise one.
struct TopLine {
  enum class Kind : uint8_t { kProcess, kTenant, kJob };
  Kind kind = Kind::kProcess;
  const ProcessRow* process = nullptr;   // of kProcess
  const TenantRecord* tenant = nullptr;  // of the others; of a process if it is known
  uint32_t tenant_slot = 0;
  JobKey job{};                          // of kJob and kProcess
  const TenantGpuUse* use = nullptr;     // of `gpu`; set where target times decide
  uint32_t gpu = 0;                      // of `use`
  std::vector<const ProcessRow*> has{};  // the processes of a tenant or a job
  std::vector<const ProcessRow*> all{};  // and those of the tenants that are below it
  uint8_t depth = 0;                     // 0 to 2
  bool is_last = false;                  // of those below the same line
  bool is_folded = false;                // what it has is not shown

  bool has_below() const { return all.size() > has.size(); }  // processes of tenants below it
};

// Names a line across updates.
struct LineKey {
  uint32_t gpu = 0;
  pid_t pid = 0;       // of a process
  std::string tenant;  // of a tenant or a job
  JobKey job;          // of a job
  auto operator<=>(const LineKey&) const = default;
};
LineKey key_of(const TopLine& line);

// Keeps rows still: two rows change places only if their shares differ by more than what a share
// wavers by itself.
class RowOrder {
 public:
  void sort(std::vector<ProcessRow>& rows, Field field, bool is_reversed);

 private:
  Field field_ = Field::kShare;
  bool is_reversed_ = false;
  std::map<std::pair<uint32_t, pid_t>, size_t> places_;  // by GPU and pid
};

// The lines point into `rows` and `snapshot`. `filter` is in lower case; empty: everything.
std::vector<TopLine> list_lines(const std::vector<ProcessRow>& rows, const PlaneSnapshot& snapshot,
                                Grouping grouping, const std::string& filter,
                                const std::set<LineKey>& folded);

}  // namespace gpushare
