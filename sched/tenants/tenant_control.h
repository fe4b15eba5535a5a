// SPDX-License-Identifier: Apache-2.0
// TenantControl: how requests change tenants. Without the kernel module they change the agent's
// Tenants directly (DirectControl). With it they are written into sysfs, which is then the truth,
// and read back (sched/module/kernel_tenants.h). One thread, the agent's.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sched/tenants/tenants.h"

namespace gpushare {

// Both implementations give the same errors, which say what was wrong and leave everything as it
// was.
class TenantControl {
 public:
  virtual ~TenantControl() = default;

  // See the functions of the same names in sched/tenants/tenants.h.
  virtual Result<> set(std::string_view tenant, std::span<const Setting> settings, bool create) = 0;
  virtual Result<> remove(std::string_view tenant) = 0;
  virtual Result<> attach(ProcessId process, std::string_view tenant) = 0;
  // Freezes or thaws all of its processes, by the user.
  virtual Result<> set_frozen(std::string_view tenant, bool is_frozen) = 0;
  // Makes a tenant for `root` and its future children, and returns its name.
  virtual Result<std::string> create_transient(ProcessId root,
                                               std::span<const Setting> settings) = 0;
  // `config`: the one that is in force. Of its tenants those come back that were removed.
  virtual Result<> forget(const TenantsConfig& config) = 0;
};

class DirectControl final : public TenantControl {
 public:
  explicit DirectControl(Tenants& tenants) : tenants_(tenants) {}

  Result<> set(std::string_view tenant, std::span<const Setting> settings, bool create) override;
  Result<> remove(std::string_view tenant) override { return tenants_.remove(tenant); }
  Result<> attach(ProcessId process, std::string_view tenant) override;
  Result<> set_frozen(std::string_view tenant, bool is_frozen) override;
  Result<std::string> create_transient(ProcessId root, std::span<const Setting> settings) override;
  Result<> forget(const TenantsConfig& config) override {
    tenants_.forget();
    return tenants_.start(config);
  }

 private:
  Tenants& tenants_;
};

}  // namespace gpushare
