// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/tenant_control.h"

namespace gpushare {

Result<> DirectControl::set(std::string_view tenant, std::span<const Setting> settings,
                            bool create) {
  const auto slot = tenants_.set(tenant, settings, create);
  if (!slot) return std::unexpected(slot.error());
  return {};
}

Result<> DirectControl::attach(ProcessId process, std::string_view tenant) {
  const auto slot = tenants_.attach(process, tenant);
  if (!slot) return std::unexpected(slot.error());
  return {};
}

Result<> DirectControl::set_frozen(std::string_view tenant, bool is_frozen) {
  const auto slot = tenants_.set_frozen(tenant, is_frozen);
  if (!slot) return std::unexpected(slot.error());
  return {};
}

Result<std::string> DirectControl::create_transient(ProcessId root,
                                                    std::span<const Setting> settings) {
  const auto slot = tenants_.create_transient(root, settings);
  if (!slot) return std::unexpected(slot.error());
  return tenants_.at(*slot)->name;
}

}  // namespace gpushare
