// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/link/attach.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "intercept/shim/link/done.h"
#include "intercept/shim/link/quiet.h"
#include "intercept/shim/link/wake.h"
#include "shmctl/shim/credit.h"
#include "shmctl/shim/protocol.h"

namespace gpushare::shim {

namespace detail {
constinit std::atomic<Process*> process{nullptr};
}

namespace {

constexpr uint64_t kLookAgainNs = 1'000'000'000, kLongestPauseNs = 64 * kLookAgainNs;
// How long to wait for the first answer, before the program uses the driver, and for a later one,
// in one of its launches.
constexpr timeval kFirstPatience{.tv_sec = 1, .tv_usec = 0},
    kNextPatience{.tv_sec = 0, .tv_usec = 10'000};

// The slot of processes without an agent.
constinit ShimSlot nobodys_slot{};
// Used if the kernel gives no page that it clears in children: then there is no feature at all.
constinit Process inert_process{};

Process& make_process() {
  if (Process* made = detail::process.load(std::memory_order_acquire)) return *made;
  void* page =
      ::mmap(nullptr, sizeof(Process), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Process* mine = &inert_process;
  if (page != MAP_FAILED && ::madvise(page, sizeof(Process), MADV_WIPEONFORK) == 0) {
    mine = static_cast<Process*>(page);
  } else {
    inert_process.slot.store(&nobodys_slot, std::memory_order_release);
  }
  Process* first = nullptr;
  if (detail::process.compare_exchange_strong(first, mine, std::memory_order_acq_rel)) return *mine;
  if (page != MAP_FAILED) ::munmap(page, sizeof(Process));
  return *first;
}

// A direct system call, as libc's function is a point at which pthread_cancel() may end the thread.
void close_quietly(int descriptor) { ::syscall(SYS_close, descriptor); }

uint64_t ns(const timeval& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(time.tv_usec) * 1'000;
}

// Makes the call again when a signal of the program has interrupted it, until `patience` is over.
template <class Call>
long despite_signals(const timeval& patience, const Call& call) {
  const uint64_t end = monotonic_ns() + ns(patience);
  long result = call();
  while (result < 0 && errno == EINTR && monotonic_ns() < end) result = call();
  return result;
}

int connect_to_agent(const timeval& patience) {
  const char* path = ::secure_getenv(kShimSocketVariable);
  if (path == nullptr || *path == '\0') path = kShimSocketPath;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(path);
  if (length >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path, length);  // what follows is zero
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const auto connect = [&] { return ::syscall(SYS_connect, socket, &address, sizeof address); };
  if (despite_signals(patience, connect) == 0) return socket;
  const int why = errno;
  close_quietly(socket);
  errno = why;
  return -1;
}

// The descriptors that the agent sends. `is_silent`: nothing came in time.
DescriptorMessage::Taken receive_descriptors(int socket, const timeval& patience, bool* is_silent) {
  DescriptorMessage message;
  const long bytes = despite_signals(
      patience, [&] { return ::syscall(SYS_recvmsg, socket, message.get(), MSG_CMSG_CLOEXEC); });
  *is_silent = bytes < 0 && (errno == EAGAIN || errno == EINTR);
  return bytes == 1 ? message.taken() : DescriptorMessage::Taken{};
}

// Null if the descriptor is anything but a slot of this version whose size is sealed.
ShimSlot* map_slot(int descriptor) {
  if (::lseek(descriptor, 0, SEEK_END) != kShimSlotBytes) return nullptr;
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return nullptr;
  void* mapped = ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* slot = static_cast<ShimSlot*>(mapped);
  const ShimHead& head = slot->head;
  if (head.magic == kShimMagic && head.version == kShimVersion && head.bytes == kShimSlotBytes)
    return slot;
  ::munmap(mapped, kShimSlotBytes);
  return nullptr;
}

// Null: there is none, or it could be written. A process has its last agent's alone.
const ShimLife* map_life(int descriptor) {
  const int seals = descriptor < 0 ? -1 : ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      ::lseek(descriptor, 0, SEEK_END) != kShimLifeBytes)
    return nullptr;
  void* mapped = ::mmap(nullptr, kShimLifeBytes, PROT_READ, MAP_SHARED, descriptor, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<const ShimLife*>(mapped);
}

// A thread that finds the page of the next agent beside this slot takes a dead one to live, until
// its beat is old; never the other way round. REQUIRES: one thread at a time.
void keep_life(Process& process, const ShimLife* life, const ShimSlot* slot) {
  process.life_of.store(nullptr, std::memory_order_relaxed);
  process.life.store(life, std::memory_order_release);
  process.life_of.store(life == nullptr ? nullptr : slot, std::memory_order_release);
}

struct Answer {
  bool is_there = false;   // an agent took the connection
  bool is_silent = false;  // it did not answer in time
  ShimSlot* slot = nullptr;
  int wake = -1;  // comes with a slot only
  const ShimLife* life = nullptr;
};

Answer ask_agent(const timeval& patience) {
  const int socket = connect_to_agent(patience);
  if (socket < 0) return {.is_silent = errno == EAGAIN};
  Answer answer{.is_there = true};
  const auto [slot, wake, life] = receive_descriptors(socket, patience, &answer.is_silent);
  close_quietly(socket);
  if (slot >= 0) {
    answer.slot = map_slot(slot);
    close_quietly(slot);
  }
  if (life >= 0) {
    if (answer.slot != nullptr) answer.life = map_life(life);
    close_quietly(life);
  }
  if (answer.slot != nullptr)
    answer.wake = wake;
  else if (wake >= 0)
    close_quietly(wake);
  return answer;
}

bool is_of_variable(const char* entry, const char* name) {
  const size_t length = std::strlen(name);
  return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

// "NAME=VALUE", or null without memory.
char* entry_of(const char* name, const char* value) {
  const size_t bytes = std::strlen(name) + std::strlen(value) + 2;
  auto* const entry = static_cast<char*>(std::malloc(bytes));
  if (entry != nullptr) ::snprintf(entry, bytes, "%s=%s", name, value);
  return entry;
}

// Sets both variables; null: they go. In a new array, which takes the place of the old one at once:
// other threads of the program may be in getenv(), and setenv() would free the array under them. A
// thread that is in setenv() itself at this moment is not safe from it, nor is what it sets.
void set_in_environment(const char* pipe) {
  size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr) ++count;
  auto* const entries = static_cast<char**>(std::malloc((count + 3) * sizeof(char*)));
  if (entries == nullptr) return;
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i)
    if (!is_of_variable(environ[i], kMpsPipeVariable) &&
        !is_of_variable(environ[i], kMpsMarkVariable))
      entries[kept++] = environ[i];
  if (pipe != nullptr)
    for (const char* name : {kMpsPipeVariable, kMpsMarkVariable})
      if (char* const entry = entry_of(name, pipe)) entries[kept++] = entry;
  entries[kept] = nullptr;
  std::atomic_ref(environ).store(entries, std::memory_order_release);
}

// Sets the MPS server's directory in the environment, where the driver reads it in cuInit. A choice
// of the program's own stays; a directory that it inherited from a parent with the shim goes,
// unless the agent names the same.
void choose_mps_server(const char* pipe) {
  const char* present = ::getenv(kMpsPipeVariable);
  const char* mark = ::getenv(kMpsMarkVariable);
  const bool is_inherited = present != nullptr && mark != nullptr && !std::strcmp(present, mark);
  if (present != nullptr && !is_inherited) return;
  if (*pipe != '\0') {
    set_in_environment(pipe);
  } else if (is_inherited) {
    set_in_environment(nullptr);
  }
}

// REQUIRES: the lock of attach() is held.
void ask_first(Process& process) {
  const Answer answer = ask_agent(kFirstPatience);
  ShimSlot* const mine = answer.slot;
  if (answer.is_there) choose_mps_server(mine == nullptr ? "" : mine->mps_pipe);
  uint32_t features = mine == nullptr ? 0 : mine->head.features & kShimFeatures;
  if ((features & kShimPartitions) != 0 && is_driver_too_old()) features &= ~kShimPartitions;
  process.features.store(features, std::memory_order_relaxed);
  process.is_telling.store((features & kShimIterations) != 0, std::memory_order_relaxed);
  if (answer.wake >= 0) keep_wake(answer.wake);
  if (mine != nullptr) say_done_at_exit();
  keep_life(process, answer.life, mine);
  process.slot.store(mine == nullptr ? &nobodys_slot : mine, std::memory_order_release);
}

}  // namespace

uint32_t attach() {
  const KeepErrno errno_of_the_program;
  Process& process = make_process();
  if (process.slot.load(std::memory_order_acquire) == nullptr) {
    if (!process.lock.lock()) return 0;  // a signal handler of the thread that is asking
    if (process.slot.load(std::memory_order_relaxed) == nullptr) ask_first(process);
    process.lock.unlock();
  }
  return process.features.load(std::memory_order_relaxed);
}

void attach_again(ShimSlot& mine) {
  const KeepErrno errno_of_the_program;
  Process& process = this_process();
  const uint64_t now = monotonic_ns();
  // Signed, because the agent may beat between the two readings.
  const auto age = static_cast<int64_t>(now - mine.beat_ns.load(std::memory_order_relaxed));
  if (&mine == &nobodys_slot ||
      (age <= static_cast<int64_t>(kShimBeatTimeoutNs) && !is_agent_gone(mine)))
    return;
  uint64_t due = process.next_look_ns.load(std::memory_order_relaxed);
  if (now < due || !process.next_look_ns.compare_exchange_strong(due, now + kLookAgainNs,
                                                                 std::memory_order_relaxed))
    return;
  open_credit(mine);  // what waits on the GPU goes on, as what waits at the gate does
  const Answer answer = ask_agent(kNextPatience);
  uint64_t pause = kLookAgainNs;
  if (answer.is_silent)
    pause = std::clamp(2 * process.look_pause_ns.load(std::memory_order_relaxed), kLookAgainNs,
                       kLongestPauseNs);
  process.look_pause_ns.store(pause, std::memory_order_relaxed);
  process.next_look_ns.store(now + pause, std::memory_order_relaxed);
  // The old page stays mapped and the old descriptor open, as another thread may be using them.
  // That is one of each for each death of an agent.
  if (answer.wake >= 0) keep_wake(answer.wake);
  if (answer.slot == nullptr) return;
  keep_life(process, answer.life, answer.slot);
  process.slot.store(answer.slot, std::memory_order_release);
  wake_credit(mine);  // the thread beside it looks at the new one from now on
}

uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace gpushare::shim
