// SPDX-License-Identifier: Apache-2.0
#include "sched/policies/knee_keeper.h"

#include <filesystem>
#include <utility>

#include "shmctl/base/aside.h"
#include "shmctl/base/log.h"

namespace gpushare {

KneeKeeper::~KneeKeeper() {
  if (writing_.valid() && writing_.wait_for(kLastPatience) != std::future_status::ready) return;
  is_due_ = true;
  save();
  if (writing_.valid()) writing_.wait_for(kLastPatience);
}

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
  is_due_ |= store_.take_save_request();
  take_answer();
  if (writing_.valid() || !std::exchange(is_due_, false)) return;
  const std::optional<std::string> text = store_.take_text();
  if (!text) return;
  writing_ = start_aside<Result<>>(
      [write = write_, path = path_, text = *text] { return write(path, text); });
  if (!writing_.valid()) store_.note_failure();
}

void KneeKeeper::take_answer() {
  if (!writing_.valid() || writing_.wait_for(Nanos{}) != std::future_status::ready) return;
  const Result<> written = writing_.get();
  if (!written && !has_failed_) log_warning("{}", written.error().message());
  if (!written) store_.note_failure();
  has_failed_ = !written;
}

}  // namespace gpushare
