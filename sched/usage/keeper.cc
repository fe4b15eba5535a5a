// SPDX-License-Identifier: Apache-2.0
#include "sched/usage/keeper.h"

#include <sys/prctl.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <utility>

#include "sched/usage/meter.h"
#include "shmctl/base/aside.h"
#include "shmctl/base/log.h"
#include "shmctl/plane/region.h"

namespace gpushare {
namespace {

int64_t wall_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

constexpr int64_t kSampleMs = kUsageTiers[0].step * 1000;

}  // namespace

// What the thread and the agent share. It outlives both, as a disk may hold the thread for ever.
struct UsageKeeper::Shared {
  std::mutex mutex;
  std::condition_variable wakes;
  bool is_ending = false;
  std::string problem;
  std::future<bool> ended;

  // Waits; false: it is to end.
  bool rest(Time until) {
    std::unique_lock lock(mutex);
    wakes.wait_until(lock, until, [this] { return is_ending; });
    return !is_ending;
  }
  void say(const Result<>& done) {
    const std::lock_guard lock(mutex);
    const std::string now = done ? "" : done.error().message();
    if (now != problem && !now.empty()) log_warning("usage is not kept: {}", now);
    if (now.empty() && !problem.empty()) log_info("usage is kept again");
    problem = now;
  }
};

namespace {

class Writer {
 public:
  Writer(ControlPlane plane, UsageFileOptions options)
      : plane_(std::move(plane)), options_(std::move(options)) {}

  void look() {
    const int64_t wall = wall_ms();
    const Time now = MonotonicClock().now();
    if (const auto snapshot = take_snapshot(plane_); snapshot && snapshot->agent.agent_pid != 0)
      meter_.look(*snapshot, now, wall);
  }
  bool is_due() const { return wall_ms() / kSampleMs != begun_ms_ / kSampleMs; }

  // A sample that could not be written is dropped: what fills a disk may do so for days.
  Result<> write(Time now) {
    UsageWrite sample = meter_.take();
    sample.start = begun_ms_ / 1000;
    begun_ms_ = wall_ms();
    if (!store_) {
      if (now < next_try_) return failure_;
      next_try_ = now + UsageKeeper::kTryAgain;
      auto opened = UsageStore::open(options_);
      if (!opened) return failure_ = std::unexpected(opened.error());
      store_.emplace(std::move(*opened));
      failure_ = {};
    }
    if (sample.sample.watched_ms == 0) return {};
    Result<> written = store_->write(sample);
    // Whatever a broken file or a full disk has done to it: it is looked at anew.
    if (!written) {
      store_.reset();
      failure_ = written;
      next_try_ = now + UsageKeeper::kTryAgain;
    }
    return written;
  }

 private:
  const ControlPlane plane_;
  const UsageFileOptions options_;
  UsageMeter meter_;
  std::optional<UsageStore> store_;
  Result<> failure_{};
  Time next_try_{};
  int64_t begun_ms_ = wall_ms();
};

}  // namespace

void UsageKeeper::open(const UsageFileOptions& options) {
  if (shared_ != nullptr && options.path == options_.path &&
      options.most_bytes == options_.most_bytes && options.is_for_all == options_.is_for_all)
    return;
  stop();
  options_ = options;
  if (options.path.empty()) return;
  auto plane = ControlPlane::open_read_only(region_);
  if (!plane) return log_warning("usage is not kept: {}", plane.error().message());
  auto shared = std::make_shared<Shared>();
  auto writer = std::make_shared<Writer>(std::move(*plane), options);
  shared->ended = start_aside<bool>([shared, writer, path = options.path] {
    ::prctl(PR_SET_NAME, "usage");
    std::error_code none;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), none);
    Time next = MonotonicClock().now();
    bool goes_on = true;
    shared->say(writer->write(next));  // opens the file: what is wrong with it shows at once
    while (goes_on) {
      next = std::max(next + kUsageLook, MonotonicClock().now());
      goes_on = shared->rest(next);
      writer->look();
      if (!goes_on || writer->is_due()) shared->say(writer->write(next));
    }
    return true;
  });
  if (!shared->ended.valid()) return log_warning("usage is not kept: no thread can be made");
  shared_ = std::move(shared);
}

UsageKeeper::Status UsageKeeper::status() const {
  if (shared_ == nullptr) return {.is_on = false, .path = options_.path, .problem = {}};
  const std::lock_guard lock(shared_->mutex);
  return {.is_on = true, .path = options_.path, .problem = shared_->problem};
}

void UsageKeeper::stop() {
  if (shared_ == nullptr) return;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_ending = true;
  }
  shared_->wakes.notify_all();
  shared_->ended.wait_for(kLastPatience);
  shared_.reset();
}

}  // namespace gpushare
