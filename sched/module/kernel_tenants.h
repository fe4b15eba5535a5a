// SPDX-License-Identifier: Apache-2.0
// KernelTenants: with the kernel module loaded, sysfs is the truth about tenants, and the agent's
// Tenants its mirror. Requests are written into sysfs and read back; what others write there is
// told by notices (or seen by looking, where none come). One thread, the agent's.
//
// What the configuration file says, and when. At the start only what sysfs does not have: a tenant
// that is not there is made, with its settings and rules, and one that is there stays as it is,
// whoever made it, so that what an operator wrote survives a restart of the agent. (Of `default`,
// which is always there, a value that is the kernel's own default counts as not written.) On a
// reload, which the user asks for, the file wins for every key and rule it names; tenants that it
// does not name are left alone.
//
// Where a process belongs is the kernel's word. It knows inheritance and rules by cgroup and uid.
// All rules, of the file and of sysfs, are applied by the agent too, to what the kernel left in
// `default` (it has no rules by command, and none before the agent started; while it is not hooked
// to the driver it sees nobody), and what comes of it is written back as an attachment.
#pragma once

#include <map>
#include <set>
#include <string>

#include "intercept/kmod/notice.h"
#include "sched/module/kernel_rules.h"
#include "sched/tenants/proc_reader.h"
#include "sched/tenants/tenant_control.h"
#include "shmctl/settings/sysfs_tree.h"

namespace gpushare {

class KernelTenants final : public TenantControl {
 public:
  // All outlive it. `is_told`: notices come; else sysfs is looked at every 100 ms.
  KernelTenants(SysfsTree& tree, Tenants& tenants, const ProcReader& processes, bool is_told)
      : tree_(tree), tenants_(tenants), processes_(processes), is_told_(is_told) {}

  // Who is in sysfs with anything that somebody chose: all but a `default` as the kernel makes it.
  std::set<std::string> written() const;

  // As said above. What cannot be written is logged and left.
  void start(const Config& config);
  void reload(const Config& config);

  // Said by the module; settings are read again by the next follow().
  void on_notice(const KernelNotice& notice);
  // Brings mirror and sysfs together. True when anything changed. Cheap when nothing did.
  bool follow(Time now);

  Result<> set(std::string_view tenant, std::span<const Setting> settings, bool create) override;
  Result<> remove(std::string_view tenant) override;
  Result<> attach(ProcessId process, std::string_view tenant) override;
  Result<std::string> create_transient(ProcessId root, std::span<const Setting> settings) override;

 private:
  static constexpr Nanos kLook{100'000'000};

  enum class Seed { kMissing, kAll };
  void seed(const Config& config, Seed what);
  void take_rules();
  void look(Time now);
  void mirror_all();
  void mirror(const std::string& tenant);
  void mirror_members(const std::string& tenant);
  void place_the_undecided();
  void remove_the_finished();
  void note(const TenantAssigned& assigned);
  void put(const ProcessId& process, const std::string& tenant);  // in the mirror
  void note_refusal(Time now, const ProcessId& process, const std::string& text);

  SysfsTree& tree_;
  Tenants& tenants_;
  const ProcReader& processes_;
  const bool is_told_;
  std::vector<Rule> rules_;               // of the file
  std::vector<KernelRule> kernel_rules_;  // the first of them, as they were given to the kernel
  struct ShownRules {
    std::string cgroup;
    std::optional<uid_t> uid;
    bool operator==(const ShownRules&) const = default;
  };
  std::map<std::string, ShownRules> shown_rules_;  // by tenant, as sysfs has them
  bool must_take_rules_ = false;
  std::set<std::string> dirty_;          // to be read again
  std::set<std::string> dirty_members_;  // whose procs are to be read again
  bool must_mirror_all_ = false;         // notices were lost, or sysfs moved unseen
  std::set<std::string> transients_;     // of `run`: removed from sysfs when they end here
  std::set<ProcessId> undecided_;        // the kernel left them in `default`
  uint64_t placed_of_ = 0;               // generation of the tenants they were last looked at in
  Time next_complaint_{};
  std::set<ProcessId> complained_of_;        // a refusal of theirs is in the log
  std::optional<uint64_t> seen_generation_;  // of sysfs
  Time next_look_{};
};

}  // namespace gpushare
