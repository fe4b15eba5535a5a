// SPDX-License-Identifier: Apache-2.0
// PlainSysfs: a plain directory in place of /sys/kernel/gpushare. It has the files and does what
// the kernel module does when something is written to create, remove and procs.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "shmctl/settings/sysfs_tree.h"

namespace gpushare::test {

class PlainSysfs : public SysfsTree {
 public:
  PlainSysfs() : SysfsTree(new_directory()) {
    std::filesystem::create_directory(root() + "/tenants");
    for (const char* name : {"create", "remove"}) put(name, "");
    put("driver", "hooked nvidia:nvidia_unlocked_ioctl\n");
    put("generation", "0\n");
    (void)create("default");
  }
  ~PlainSysfs() override { std::filesystem::remove_all(root()); }

  Result<bool> create(std::string_view tenant) override {
    if (auto checked = SysfsTree::create(tenant); !checked) return checked;
    const std::string folder = "tenants/" + std::string(tenant);
    if (const std::string_view above = name_above(tenant); !above.empty() && !has(above))
      return make_error(std::errc::no_such_file_or_directory, "create tenant",
                        "there is no tenant above it");
    if (!std::filesystem::create_directory(root() + "/" + folder)) return false;
    for (const Setting& setting : format_settings({}))
      put(folder + "/" + setting.key, setting.value + (setting.key == "max" ? " 100000\n" : "\n"));
    for (const char* name : {"procs", "match_cgroup", "match_uid"}) put(folder + "/" + name, "\n");
    put(folder + "/freeze", "0\n");
    bump();
    return true;
  }
  Result<> remove(std::string_view tenant) override {
    if (tenant == "default")
      return make_error(std::errc::operation_not_permitted, "remove tenant",
                        "'default' always exists and cannot be removed");
    if (auto checked = SysfsTree::remove(tenant); !checked) return checked;
    const std::vector<std::string> all = tenants().value();
    if (std::ranges::any_of(all, [&](const auto& one) { return name_above(one) == tenant; }))
      return make_error(std::errc::device_or_resource_busy, "remove tenant",
                        "there are tenants below it");
    std::filesystem::remove_all(root() + "/tenants/" + std::string(tenant));
    bump();
    return {};
  }
  Result<> attach(pid_t pid, std::string_view tenant) override {
    if (dead == pid)
      return make_error(std::errc::no_such_process, "find process",
                        "there is no process " + std::to_string(pid));
    if (!has(tenant)) return SysfsTree::attach(pid, tenant);
    attached.emplace_back(pid, tenant);
    const std::string file = "tenants/" + std::string(tenant) + "/procs";
    put(file, get(file) + std::to_string(pid) + "\n");
    bump();
    return {};
  }

  // Write and read a file as an operator does with echo and cat.
  void put(const std::string& file, const std::string& text) const {
    std::ofstream(root() + "/" + file) << text;
  }
  std::string get(const std::string& file) const {
    std::ifstream in(root() + "/" + file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string get(const std::string& tenant, const std::string& key) const {
    std::string text = get("tenants/" + tenant + "/" + key);
    if (text.ends_with('\n')) text.pop_back();
    return text;
  }
  void bump() const { put("generation", std::to_string(generation().value_or(0) + 1) + "\n"); }

  std::vector<std::pair<pid_t, std::string>> attached;
  pid_t dead = 0;

 private:
  static std::string new_directory() {
    std::string name = std::filesystem::temp_directory_path() / "gpushare-sysfs-XXXXXX";
    return ::mkdtemp(name.data());
  }
};

}  // namespace gpushare::test
