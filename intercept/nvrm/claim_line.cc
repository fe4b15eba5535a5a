// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/claim_line.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "shmctl/base/aside.h"

namespace gpushare::nvrm {
namespace {

// Copies of descriptors are kept so long: they would keep the memory of a process that ends.
constexpr Nanos kLongestRound = std::chrono::milliseconds(5);

}  // namespace

Result<std::unique_ptr<ClaimLine>> ClaimLine::start(Driver& driver) {
  Fd ready(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!ready.is_open()) return errno_error("examine claims");
  std::unique_ptr<ClaimLine> line(new ClaimLine(driver, std::move(ready)));
  try {
    line->thread_ = start_quietly([line = line.get()] { line->work(); });
  } catch (const std::system_error& error) {
    return std::unexpected(Error{error.code(), "examine claims", {}});
  }
  return line;
}

ClaimLine::~ClaimLine() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  added_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void ClaimLine::add(DriverEvent&& event, int fd) {
  {
    const std::lock_guard lock(mutex_);
    claims_to_examine_.push_back({std::move(event), fd});
  }
  added_.notify_one();
}

uint64_t ClaimLine::take(const Observer::Sink& sink, uint64_t most) {
  std::deque<DriverEvent> taken;
  {
    const std::lock_guard lock(mutex_);
    if (examined_.size() <= most) {
      uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t got = ::read(ready_.get(), &ignored, sizeof ignored);
      taken = std::exchange(examined_, {});
    }
    for (; taken.size() < most && !examined_.empty(); examined_.pop_front())
      taken.push_back(std::move(examined_.front()));
  }
  for (DriverEvent& event : taken) sink(std::move(event));
  return taken.size();
}

std::size_t ClaimLine::waiting() const {
  const std::lock_guard lock(mutex_);
  return claims_to_examine_.size() + under_way_;
}

Observer::FalseClaims ClaimLine::false_claims() const {
  const std::lock_guard lock(mutex_);
  return false_;
}

void ClaimLine::pass_on(DriverEvent&& event) {
  const std::lock_guard lock(mutex_);
  const bool is_first = examined_.empty();  // take() has read it then
  examined_.push_back(std::move(event));
  if (!is_first) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(ready_.get(), &one, sizeof one);
}

void ClaimLine::work() {
  const auto sink = [this](DriverEvent&& event) { pass_on(std::move(event)); };
  std::unique_lock lock(mutex_);
  while (true) {
    added_.wait(lock, [this] { return is_ending_ || !claims_to_examine_.empty(); });
    if (is_ending_) return;
    const Time until = MonotonicClock().now() + kLongestRound;
    while (!claims_to_examine_.empty() && !is_ending_ && MonotonicClock().now() < until) {
      Claim next = std::move(claims_to_examine_.front());
      claims_to_examine_.pop_front();
      under_way_ = 1;
      lock.unlock();
      claims_.examine(std::move(next.event), next.fd, sink);
      lock.lock();
    }
    lock.unlock();
    claims_.rest(sink);
    lock.lock();
    false_ = claims_.false_claims();
    under_way_ = 0;
  }
}

}  // namespace gpushare::nvrm
