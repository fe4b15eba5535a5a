// SPDX-License-Identifier: Apache-2.0
#include "sched/kept/kept_config.h"

#include <filesystem>

#include "sched/tenants/config.h"
#include "shmctl/base/aside.h"
#include "shmctl/base/log.h"

namespace gpushare {

void keep_config(const std::string& path, const std::string& kept,
                 std::span<const PolicyEntry> policies) {
  namespace fs = std::filesystem;
  if (kept.empty()) return;
  std::error_code code;
  if (!fs::exists(path, code)) {
    fs::remove(kept, code);
    return;
  }
  // A gpushared that was started by hand has no state directory.
  if (!fs::is_directory(fs::path(kept).parent_path(), code)) return;
  const std::string draft = kept + ".tmp";
  fs::copy_file(path, draft, fs::copy_options::overwrite_existing, code);
  if (!code && load_config(draft, policies)) fs::rename(draft, kept, code);
  if (code) log_warning("the configuration is not kept in {}: {}", kept, code.message());
  fs::remove(draft, code);
}

ConfigKeeper::~ConfigKeeper() {
  if (keeping_.valid() && keeping_.wait_for(kLastPatience) != std::future_status::ready) return;
  advance();
  if (keeping_.valid()) keeping_.wait_for(kLastPatience);
}

void ConfigKeeper::advance() {
  if (keeping_.valid() && keeping_.wait_for(Nanos{}) == std::future_status::ready) keeping_ = {};
  if (keeping_.valid() || !is_due_) return;
  keeping_ = start_aside<bool>([keep = keep_] {
    keep();
    return true;
  });
  is_due_ = !keeping_.valid();  // no thread can be made now
}

}  // namespace gpushare
