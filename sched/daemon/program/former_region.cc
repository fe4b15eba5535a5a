// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/program/former_region.h"

#include <fmt/core.h>

#include <string>

#include "sched/daemon/program/thaw_all.h"
#include "sched/kept/roster_store.h"
#include "shmctl/base/log.h"
#include "shmctl/plane/roster.h"

namespace gpushare {
namespace {

// An empty region, for a moment under a name of its own.
Result<ControlPlane> make_beside(const std::string& name) {
  if (auto removed = ControlPlane::remove(name); !removed) return std::unexpected(removed.error());
  return ControlPlane::create(name);
}

// Returns what became of what was set at run time, in words.
std::string settings_for(Region& next, const AgentOptions& options) {
  Roster roster(next);
  const auto taken = take_kept_roster(options.kept_roster, roster);
  if (!taken) log_error("{}", taken.error().message());
  if (taken && *taken) return "are those of " + options.kept_roster;
  return "are lost";
}

}  // namespace

bool is_unreadable(const Result<ControlPlane>& plane) {
  return !plane && plane.error().code == ControlPlane::kUnreadable;
}

Result<> begin_anew(const Error& why, const AgentOptions& options) {
  log_warning("{}", why.message());
  const std::string beside = options.region + ".new";
  auto next = make_beside(beside);
  if (!next) return std::unexpected(next.error());
  if (const auto copied = ControlPlane::copy_ledger(options.region, next->region()); !copied) {
    log_warning("what was done to programs is not known: {}", copied.error().message());
    if (const auto thawed = thaw_all_programs(options); !thawed) {
      (void)ControlPlane::remove(beside);
      log_error("programs that were frozen may still be: {} stays for the next try",
                options.region);
      return thawed;
    }
  }
  const std::string settings = settings_for(next->region(), options);
  const auto aside = ControlPlane::replace(options.region, beside);
  if (!aside) return std::unexpected(aside.error());
  log_warning(
      "it is kept as {}, and a new one is begun: tenants, settings and freezes that were made at "
      "run time {}",
      *aside, settings);
  return {};
}

Result<> begin_anew_if_unreadable(const AgentOptions& options) {
  const auto found = ControlPlane::open_existing(options.region);
  return is_unreadable(found) ? begin_anew(found.error(), options) : Result<>{};
}

}  // namespace gpushare
