// SPDX-License-Identifier: Apache-2.0
// FileKeeper: the file of what policies learn of programs (KneeStore, LengthStore), and that of
// what was set at run time. Policies do no I/O: they use the store, and the agent calls save()
// after each step. One thread, the agent's; the file is written on another, because a disk may take
// seconds.
#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "shmctl/base/aside.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/base/log.h"

namespace gpushare {

// `Store` says what it holds (kContents), how long two writings are apart at least (kLeastPause),
// and has open(), take_save_request(), take_text(), note_failure() and write() as KneeStore has.
// Where the text is long take_text() may give what write() makes it of.
template <class Store>
class FileKeeper {
 public:
  // How long the end waits for the disk.
  static constexpr Nanos kLastPatience = std::chrono::seconds(2);
  using Text = std::remove_cvref_t<decltype(*std::declval<Store&>().take_text())>;
  using Write = std::function<Result<>(const std::string& path, const Text& text)>;

  // `write`: called on any thread, one call at a time.
  explicit FileKeeper(Write write = Store::write) : write_(std::move(write)) {}
  FileKeeper(const FileKeeper&) = delete;
  FileKeeper& operator=(const FileKeeper&) = delete;
  ~FileKeeper() { finish(); }

  // Empty: nowhere. A file that cannot be read is logged, and nothing is kept: then every program
  // is learnt anew, which is no reason to do less.
  void open(const std::string& path) {
    if (path == path_) return;
    path_ = path;
    store_ = Store();
    if (path.empty()) return;
    std::error_code none;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), none);
    auto opened = Store::open(path);
    if (!opened)
      return log_warning("{} are not kept: {}", Store::kContents, opened.error().message());
    store_ = std::move(*opened);
  }

  // If anything was found since. What is found while the file is being written, or within the
  // store's pause, is written by a later call. The first failure of a row is logged. Never blocks.
  void save(Time now) {
    is_due_ |= store_.take_save_request();
    take_answer();
    if (writing_.valid() || !is_due_ || now < next_) return;
    is_due_ = false;
    std::optional<Text> text = store_.take_text();
    if (!text) return;
    next_ = now == Time::max() ? now : now + Store::kLeastPause;
    writing_ = start_aside<Result<>>(
        [write = write_, path = path_, text = std::move(*text)] { return write(path, text); });
    if (!writing_.valid()) store_.note_failure();
  }

  // Writes what save() has not, and waits for that, for kLastPatience.
  void finish() {
    if (writing_.valid() && writing_.wait_for(kLastPatience) != std::future_status::ready) return;
    save_last();
    if (writing_.valid()) writing_.wait_for(kLastPatience);
  }

  // As save(), whatever pause is left: the agent is about to end. Never blocks, so that nothing is
  // begun while the file is being written.
  void save_last() {
    is_due_ = true;
    next_ = Time{};
    save(Time::max());
  }

  // Stays where it is, also over open().
  Store* store() { return &store_; }

 private:
  void take_answer() {
    if (!writing_.valid() || writing_.wait_for(Nanos{}) != std::future_status::ready) return;
    const Result<> written = writing_.get();
    if (!written && !has_failed_)
      log_warning("{}: {}", Store::kContents, written.error().message());
    if (!written) store_.note_failure();
    has_failed_ = !written;
  }

  const Write write_;
  std::string path_;
  Store store_;
  std::future<Result<>> writing_;  // invalid: the file is not being written
  bool is_due_ = false, has_failed_ = false;
  Time next_{};  // not sooner
};

}  // namespace gpushare
