// SPDX-License-Identifier: Apache-2.0
// KernelTenants: with the kernel module loaded, sysfs is the truth about tenants, and the agent's
// Tenants is its mirror. Requests are written into sysfs and read back; what others write there is
// told by notices, or seen by looking where no notices come. One thread, the agent's.
//
// Where a process belongs is what the kernel says. The kernel knows inheritance, and rules by
// cgroup and uid. It has no rules by command, none before the agent started, and sees no process
// while it is not hooked to the driver. So the agent applies all rules, those of the file and those
// of sysfs, to the processes that the kernel left in `default`, and writes the result back as an
// attachment. So it is with the rules from one on whose user the name service does not tell in
// time: the kernel gets them when it does.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "intercept/gpu.h"
#include "intercept/kmod/notice.h"
#include "sched/module/kernel_rules.h"
#include "sched/module/refusal_log.h"
#include "sched/module/sysfs_seed.h"
#include "sched/module/user_ids.h"
#include "sched/tenants/proc_reader.h"
#include "sched/tenants/tenant_control.h"
#include "shmctl/settings/sysfs_tree.h"

namespace gpushare {

using namespace std::chrono_literals;

class KernelTenants final : public TenantControl {
 public:
  // The references outlive the object. `is_told`: notices come; otherwise follow() looks into sysfs
  // every 100 ms. `ask`: the name service; its own test brings another.
  KernelTenants(SysfsTree& tree, Tenants& tenants, const ProcReader& processes, bool is_told,
                UserIds::Ask ask = system_uid_of)
      : tree_(tree),
        tenants_(tenants),
        processes_(processes),
        is_told_(is_told),
        users_(std::move(ask)) {}

  // Before the start, if an agent without the module was here: writes what Tenants has from it into
  // sysfs, except for tenants in which somebody has chosen something there. It can be done again
  // after a death in the middle.
  void hand_over(const TenantsConfig& config);
  // Take over the configuration as sched/module/sysfs_seed.h says. From now on only the kernel says
  // who belongs where. What cannot be written is logged and left.
  // `may_remain`: as ModuleLink::start().
  void start(const TenantsConfig& config, const std::set<ProcessId>& may_remain = {});
  void reload(const TenantsConfig& config) { seed(config, Seed::kAll); }

  // The GPUs that limits of single GPUs name, by UUID or gpuN; a limit of another one is not
  // mirrored. With the next follow().
  void set_gpus(std::span<const GpuInfo> gpus);

  // Takes what the module said; settings are read again by the next follow().
  void on_notice(const KernelNotice& notice);
  // Brings mirror and sysfs together. Returns true if the mirror changed. Cheap when nothing did.
  bool follow(Time now);

  // See sched/tenants/tenant_control.h.
  Result<> set(std::string_view tenant, std::span<const Setting> settings, bool create) override;
  Result<> remove(std::string_view tenant) override;
  Result<> attach(ProcessId process, std::string_view tenant) override;
  Result<> set_frozen(std::string_view tenant, bool is_frozen) override;
  Result<std::string> create_transient(ProcessId root, std::span<const Setting> settings) override;
  Result<> forget(const TenantsConfig& config) override;

 private:
  static constexpr Nanos kLook = 100ms;
  Result<> remove_from_sysfs(const std::string& tenant);

  Seeded seed_with_users(const TenantsConfig& config, Seed what);
  void seed(const TenantsConfig& config, Seed what);
  void take_late_users();
  void take_rules();
  void look(Time now);
  void mirror_all();
  void mirror_each(const std::set<std::string>& names);
  void mirror_line(std::string_view tenant);
  void mirror(const std::string& tenant);
  void mirror_members(const std::string& tenant);
  bool has_ended_member(const std::string& tenant) const;
  std::map<uint32_t, Cap> by_index(const std::map<std::string, Cap>& caps) const;
  void place_the_undecided();
  void remove_the_finished();
  void note(const TenantAssigned& assigned);
  void put(const ProcessId& process, const std::string& tenant);  // in the mirror

  SysfsTree& tree_;
  Tenants& tenants_;
  const ProcReader& processes_;
  const bool is_told_;
  std::vector<Rule> rules_;               // of the file
  std::vector<KernelRule> kernel_rules_;  // the first of them, as they were given to the kernel
  UserIds users_;                         // that rules_ name
  std::set<std::string> take_uid_;        // see Seeded
  bool does_file_win_ = false;            // over what an operator has written since
  struct ShownRules {
    std::string cgroup;
    std::optional<uid_t> uid;
    bool operator==(const ShownRules&) const = default;
  };
  std::map<std::string, ShownRules> shown_rules_;  // by tenant, as sysfs has them
  bool must_take_rules_ = false;
  std::map<std::string, uint32_t> gpus_;  // index by name
  std::set<std::string> dirty_;           // to be read again
  std::set<std::string> dirty_members_;   // whose procs are to be read again
  bool must_mirror_all_ = false;          // notices were lost, or sysfs moved unseen
  std::set<std::string> transients_;  // of `run`: removed from sysfs when they go from the mirror
  std::set<ProcessId> undecided_;     // the kernel left them in `default`
  uint64_t placed_of_ = 0;            // generation of the tenants when they were last looked at
  RefusalLog refusals_;
  std::optional<uint64_t> seen_generation_;  // of sysfs
  Time next_look_{};
};

}  // namespace gpushare
