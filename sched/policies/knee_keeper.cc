// SPDX-License-Identifier: Apache-2.0
#include "sched/policies/knee_keeper.h"

#include <filesystem>
#include <utility>

#include "shmctl/base/log.h"

namespace gpushare {

void KneeKeeper::open(const std::string& path) {
  if (path == path_) return;
  path_ = path;
  store_ = KneeStore();
  if (path.empty()) return;
  std::error_code none;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), none);
  auto opened = KneeStore::open(path);
  if (!opened) return log_warning("knees are not kept: {}", opened.error().message());
  store_ = std::move(*opened);
}

void KneeKeeper::save() {
  if (!store_.take_save_request()) return;
  const auto saved = store_.save();
  if (!saved && !has_failed_) log_warning("{}", saved.error().message());
  has_failed_ = !saved;
}

}  // namespace gpushare
