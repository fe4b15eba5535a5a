// SPDX-License-Identifier: Apache-2.0
#include "shmctl/shim/slot_keeper.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "shmctl/base/aside.h"
#include "shmctl/shim/credit.h"
#include "shmctl/shim/futex.h"
#include "shmctl/shim/protocol.h"

namespace gpushare {
namespace {

// Slots of processes that have ended are dropped so often.
constexpr Nanos kDropEndedEach = std::chrono::seconds(1);

int reported_to = -1;

uint64_t monotonic_ns() { return stored_ns(MonotonicClock().now()); }

bool has_ended(const Fd& process) {
  pollfd end{.fd = process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&end, 1, 0) > 0;
}

}  // namespace

SlotKeeper::Kept::~Kept() { ::munmap(slot, kShimSlotBytes); }

Result<std::unique_ptr<SlotKeeper>> SlotKeeper::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return errno_error("watch over the slots of processes");
  return std::unique_ptr<SlotKeeper>(new SlotKeeper(Fd(ends[0]), Fd(ends[1])));
}

// The thread takes no signal, because the supervisor waits for them.
SlotKeeper::SlotKeeper(Fd own_end, Fd agents_end)
    : own_end_(std::move(own_end)), agents_end_(std::move(agents_end)) {
  thread_ = start_quietly([this] { run(); });
}

SlotKeeper::~SlotKeeper() {
  ::shutdown(own_end_.get(), SHUT_RDWR);
  thread_.join();
}

void SlotKeeper::run() {
  uint64_t next_sweep_ns = 0;
  while (true) {
    const bool has_slots = size() > 0;
    pollfd more{.fd = own_end_.get(), .events = POLLIN, .revents = 0};
    const int ready =
        ::poll(&more, 1, has_slots ? static_cast<int>(kLook / std::chrono::milliseconds(1)) : -1);
    const std::lock_guard lock(mutex_);
    if (ready > 0 && !take_all()) return;
    const uint64_t now_ns = monotonic_ns();
    free_late(now_ns);
    if (now_ns < next_sweep_ns) continue;
    next_sweep_ns = now_ns + static_cast<uint64_t>(kDropEndedEach.count());
    drop_ended();
  }
}

// REQUIRES for these three: mutex_ is held.
bool SlotKeeper::take_all() {
  while (true) {
    ProcessId process;
    DescriptorMessage message(&process, sizeof process);
    const ssize_t bytes = ::recvmsg(own_end_.get(), message.get(), MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (bytes < 0) return errno == EAGAIN || errno == EINTR;
    if (bytes == 0) return false;
    const DescriptorMessage::Taken taken = message.taken();
    const Fd file(taken.slot);
    Fd owner(taken.wake);
    if (bytes != sizeof process || !file.is_open() || !owner.is_open()) continue;
    void* const mapped =
        ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) continue;
    slots_[process] = std::make_unique<Kept>(static_cast<ShimSlot*>(mapped), std::move(owner));
  }
}

void SlotKeeper::free_late(uint64_t now_ns) {
  for (const auto& [process, kept] : slots_) {
    ShimSlot& slot = *kept->slot;
    const auto age = static_cast<int64_t>(now_ns - slot.beat_ns.load(std::memory_order_relaxed));
    if (age > static_cast<int64_t>(kShimBeatTimeoutNs) && !is_credit_open(slot)) open_credit(slot);
  }
}

void SlotKeeper::drop_ended() {
  std::erase_if(slots_, [](const auto& entry) { return has_ended(entry.second->owner); });
}

void SlotKeeper::free_all() {
  const std::lock_guard lock(mutex_);
  (void)take_all();  // what the agent has sent last
  for (const auto& [process, kept] : slots_) {
    ShimSlot& slot = *kept->slot;
    slot.beat_ns.store(0, std::memory_order_relaxed);
    open_credit(slot);
    wake_credit(slot);
    wake_all(slot.gate);
  }
}

std::size_t SlotKeeper::size() {
  const std::lock_guard lock(mutex_);
  return slots_.size();
}

void SlotKeeper::report_to(int fd) { reported_to = fd; }

Result<> SlotKeeper::report(const ProcessId& process, const Fd& slot, const Fd& owner) {
  if (reported_to < 0) return {};
  ProcessId told = process;
  DescriptorMessage message(&told, sizeof told);
  message.put(slot.get(), owner.get());
  if (::sendmsg(reported_to, message.get(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    return errno_error("tell the supervisor of a slot");
  return {};
}

}  // namespace gpushare
