// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/program/commands.h"

#include <fmt/core.h>
#include <pwd.h>

#include <string>
#include <vector>

#include "sched/daemon/instance_lock.h"
#include "sched/daemon/program/former_region.h"
#include "sched/kept/roster_store.h"
#include "sched/module/kernel_module.h"
#include "sched/module/module_link.h"
#include "sched/policies/policies.h"
#include "sched/tenants/config.h"
#include "sched/tenants/proc_reader.h"
#include "sched/tenants/rule_warnings.h"
#include "shmctl/base/log.h"
#include "shmctl/plane/owner_list.h"
#include "shmctl/plane/region.h"

namespace gpushare {
namespace {

bool is_user(const std::string& name) { return ::getpwnam(name.c_str()) != nullptr; }

}  // namespace

ExitCode fail(const Error& error) {
  log_error("{}", error.message());
  return error.code == std::errc::invalid_argument ? kExitUsage : kExitFailure;
}

ExitCode check_config(const std::string& path, bool must_exist) {
  const std::vector<PolicyEntry> policies = all_policies();
  const auto loaded = load_config(path, policies);
  if (!loaded && !must_exist &&
      loaded.error().front().code == std::errc::no_such_file_or_directory) {
    fmt::print("{} is not there: the defaults hold\n", path);
    return kExitOk;
  }
  if (loaded) {
    for (const std::string& warning : rule_warnings(loaded->rules, is_user))
      fmt::print(stderr, "{}: warning: {}\n", path, warning);
    fmt::print("{}: correct, {} tenants\n", path, loaded->tenants.size());
    return kExitOk;
  }
  for (const ConfigError& error : loaded.error()) fmt::print(stderr, "{}\n", error.message());
  return kExitUsage;
}

ExitCode forget_all(const AgentOptions& options) {
  auto plane = ControlPlane::open_existing(options.region);
  const bool is_absent = !plane && plane.error().code == std::errc::no_such_file_or_directory;
  if (is_absent) {
    fmt::print("nothing to forget: there is no control plane {}\n", options.region);
    const auto gone = forget_kept_roster(options.kept_roster);
    return gone ? kExitOk : fail(gone.error());
  }
  if (!plane && !is_unreadable(plane)) return fail(plane.error());
  const auto lock = lock_instance(options.region, kForAStoppingAgent);
  if (!lock) return fail(lock.error());
  if (const auto gone = forget_kept_roster(options.kept_roster); !gone) return fail(gone.error());
  if (!plane) {
    fmt::print("{}\nthe next gpushared begins without it\n", plane.error().message());
    return kExitOk;
  }
  const std::vector<PolicyEntry> policies = all_policies();
  const auto loaded = load_config(options.config, policies);
  if (!loaded && loaded.error().front().code != std::errc::no_such_file_or_directory)
    return check_config(options.config, true);  // says what is wrong
  const Config config = loaded ? *loaded : Config(policies);

  const SystemProcReader processes;
  Roster roster(plane->region());
  Tenants tenants(&roster);
  ModuleLink link(KernelModule::find({.device = "", .sysfs = options.module.sysfs}, -1), tenants,
                  roster, processes);
  OwnerList::forget(plane->region());
  Result<> done = link.start(config, /*may_remain=*/{});
  if (done) done = link.control().forget(config);
  return done ? kExitOk : fail(done.error());
}

}  // namespace gpushare
