// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/undoing.h"

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>

#include "shmctl/base/aside.h"
#include "shmctl/base/log.h"
#include "shmctl/plane/ledger.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// Before the second try over a new connection; the first one follows at once.
constexpr Nanos kFirstUndoPause = 100ms, kLongestUndoPause = 5s;

}  // namespace

// Rung by the threads, which may outlive everything else here.
class Undoing::Bell {
 public:
  explicit Bell(std::function<void()> told) : told_(std::move(told)) {}
  void ring() {
    {
      const std::lock_guard lock(mutex_);
      has_rung_ = true;
    }
    rung_.notify_all();
    if (told_) told_();
  }
  // Since the last call. Returns false when the time is over.
  bool wait_until(Time end) {
    std::unique_lock lock(mutex_);
    return rung_.wait_until(lock, end, [this] { return has_rung_; }) &&
           std::exchange(has_rung_, false);
  }

 private:
  const std::function<void()> told_;
  std::mutex mutex_;
  std::condition_variable rung_;
  bool has_rung_ = false;
};

Undoing::Undoing(Region& region, const ProcReader& processes, const Clock& clock, Deeds deeds)
    : region_(region),
      clock_(clock),
      open_(std::move(deeds.open)),
      is_free_(std::move(deeds.is_free)),
      bell_(std::make_shared<Bell>(std::move(deeds.told))),
      opening_([bell = bell_] { bell->ring(); }),
      recoveries_(region, processes, clock, std::move(deeds.resume),
                  [bell = bell_] { bell->ring(); }) {}

void Undoing::look_for_gpu() {
  if (gpu_ == nullptr && !opening_.is_under_way()) opening_.begin(open_, clock_.now());
}

void Undoing::begin(Writer writer) {
  wanted_ = writer;
  failures_ = 0;
  again_at_ = clock_.now();
  advance();
}

void Undoing::call_off() {
  wanted_.reset();
  again_at_ = Time::max();
  recoveries_.call_off();
  thawed_.clear();
  silent_.clear();
  taken_.clear();
}

void Undoing::advance() {
  take_opened();
  collect();
  name_the_silent();
  if (!wanted_ || clock_.now() < again_at_) return;
  again_at_ = Time::max();
  report_.errors.clear();
  look_for_gpu();
  const std::set<uint32_t> taken = not_free();
  enter(recoveries_.begin(gpu_, *wanted_, taken), *wanted_, gpu_.get());
  if (!taken.empty()) put_off();
  collect();
}

// GPUs that are listed and are to be left alone. Whoever dies may be in a call on any: what it
// lists stays listed for a second time.
std::set<uint32_t> Undoing::not_free() {
  std::set<uint32_t> taken;
  if (*wanted_ == Writer::kDies) return taken;
  for (const LedgerKey& key : Ledger(region_).groups()) {
    if (taken.contains(key.gpu)) continue;
    const Result<> is_free = is_free_(key.gpu);
    if (is_free) continue;
    taken.insert(key.gpu);
    if (!taken_.contains(key.gpu))
      log_error("GPU {}: what is listed there is undone later: {}", key.gpu,
                is_free.error().message());
  }
  if (taken_.empty()) taken_since_ = clock_.now();
  taken_ = taken;
  return taken;
}

void Undoing::take_opened() {
  auto opened = opening_.take();
  if (!opened) return;
  if (std::exchange(is_opening_silent_, false)) log_info("the driver answers again");
  if (*opened) {
    gpu_ = std::move(**opened);
    // Ahead of the first call, so that little can fail then.
    for (const GpuInfo& info : gpu_->gpus())
      (void)start_aside<bool>(
          [gpu = gpu_, index = info.index] { return gpu->open(index).has_value(); });
  }
  const std::string refusal = *opened ? "" : opened->error().message();
  const bool is_news = refusal != std::exchange(refusal_, refusal);
  if (!wanted_) return;
  if (is_news && gpu_ == nullptr && !is_ledger_empty(region_)) report_.errors.push_back(refusal);
  if (gpu_ != nullptr)
    try_soon();
  else if (!is_ledger_empty(region_))
    put_off();
}

void Undoing::collect() {
  for (Recoveries::Over& over : recoveries_.collect()) {
    if (silent_.erase(over.gpu) > 0) log_info("GPU {} answers again", over.gpu);
    enter(std::move(over.report), over.writer, over.asked);
    if (wanted_ && *wanted_ != over.writer) again_at_ = clock_.now();
  }
  if (recoveries_.under_way().empty() && is_ledger_empty(region_)) {
    wanted_.reset();
    again_at_ = Time::max();
    failures_ = 0;
  }
}

// What has failed over a connection that was given up meanwhile says nothing of the present one.
void Undoing::enter(RecoveryReport report, Writer writer, const void* asked) {
  for (const ProcessId& process : report.thawed)
    if (thawed_.insert(process).second) report_.thawed.push_back(process);
  if (writer == Writer::kHasEnded) {
    report_.slices_restored += report.slices_restored;
    report_.gone += report.gone;
  }
  if (report.errors.empty()) return;
  std::ranges::move(report.errors, std::back_inserter(report_.errors));
  if (asked != gpu_.get()) return try_soon();
  drop_gpu();  // it may be our connection to the driver that is broken
  put_off();
}

// Not before a pause that has begun is over.
void Undoing::try_soon() {
  if (again_at_ == Time::max()) again_at_ = clock_.now();
}

// All that fail together are one failure.
void Undoing::put_off() {
  if (again_at_ != Time::max()) return;
  Nanos pause{};
  if (failures_ > 0)
    pause = std::min(kFirstUndoPause * (1 << std::min(failures_ - 1, 8)), kLongestUndoPause);
  ++failures_;
  again_at_ = clock_.now() + pause;
}

// Closing the driver is a call of it as well.
void Undoing::drop_gpu() {
  if (gpu_ == nullptr) return;
  (void)start_aside<bool>([gpu = std::exchange(gpu_, nullptr)]() mutable {
    gpu.reset();
    return true;
  });
}

void Undoing::name_the_silent() {
  const Time since = clock_.now() - kPatience;
  for (const auto& [gpu, began] : recoveries_.under_way())
    if (began <= since && silent_.insert(gpu).second)
      log_error("GPU {} does not answer: what is frozen there stays frozen until it does", gpu);
  if (opening_.is_under_way() && opening_.since() <= since && wanted_ &&
      !is_ledger_empty(region_) && !std::exchange(is_opening_silent_, true))
    log_error("the driver does not answer: what is frozen stays frozen until it can be opened");
}

Time Undoing::next() const {
  Time next = again_at_;
  for (const auto& [gpu, began] : recoveries_.under_way())
    if (!silent_.contains(gpu)) next = std::min(next, began + kPatience);
  if (opening_.is_under_way() && wanted_ && !is_opening_silent_)
    next = std::min(next, opening_.since() + kPatience);
  return next;
}

bool Undoing::is_expected_soon() const {
  const Time now = clock_.now();
  if (!wanted_ || is_ledger_empty(region_)) return false;
  if (again_at_ <= now) return true;
  if (!taken_.empty() && taken_since_ + kPatience > now) return true;
  if (opening_.is_under_way() && opening_.since() + kPatience > now) return true;
  const std::map<uint32_t, Time> under_way = recoveries_.under_way();
  return std::ranges::any_of(under_way,
                             [&](const auto& one) { return one.second + kPatience > now; });
}

void Undoing::wait() {
  const Time until = clock_.now() + kLongestWait;
  for (advance(); is_expected_soon() && clock_.now() < until; advance())
    bell_->wait_until(std::min(until, next()));
  name_the_silent();
}

RecoveryReport Undoing::take_report() { return std::exchange(report_, {}); }

}  // namespace gpushare
