// SPDX-License-Identifier: Apache-2.0
#include "shmctl/shim/host.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "shmctl/base/log.h"
#include "shmctl/base/pidfd.h"
#include "shmctl/base/proc_stat.h"
#include "shmctl/base/unix_socket.h"
#include "shmctl/shim/credit.h"
#include "shmctl/shim/futex.h"
#include "shmctl/shim/protocol.h"
#include "shmctl/shim/slot_keeper.h"

namespace gpushare {
namespace {

constexpr const char* kListen = "listen on the shim socket";
constexpr Nanos kSweep = std::chrono::milliseconds(100);

Result<> send_descriptors(const Fd& connection, const Fd& slot, int wake, int life) {
  DescriptorMessage message;
  message.put(slot.get(), wake, life);
  if (::sendmsg(connection.get(), message.get(), MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
    return errno_error("hand a process its slot");
  return {};
}

// A process sends nothing, so whatever can be read is the end of the connection. A process that did
// not wait keeps the slot that it has, and may ask again.
bool has_hung_up(const Fd& connection) {
  pollfd end{.fd = connection.get(), .events = POLLIN | POLLRDHUP, .revents = 0};
  return ::poll(&end, 1, 0) > 0;
}

// Adds 1 and wakes all waiters, which look again.
void step(std::atomic<uint32_t>& word) {
  word.fetch_add(1, std::memory_order_release);
  wake_all(word);
}

// A closing that a thread has given up at holds none of its process any more.
void close_again(ShimSlot& slot) {
  slot.gate.fetch_add(2, std::memory_order_release);
  wake_all(slot.gate);
  if (is_credit_open(slot)) close_credit(slot);
}

}  // namespace

Result<std::unique_ptr<ShimHost>> ShimHost::listen(const std::string& path, Decide decide) {
  auto socket = listen_on_socket(path, 0666, kListen);
  if (!socket) return std::unexpected(socket.error());
  return std::unique_ptr<ShimHost>(new ShimHost(std::move(*socket), path, std::move(decide)));
}

ShimHost::ShimHost(Fd socket, std::string path, Decide decide)
    : socket_(std::move(socket)), path_(std::move(path)), decide_(std::move(decide)) {
  now_ = MonotonicClock().now();
  auto life = AgentLife::begin();
  if (life)
    life_ = std::move(*life);
  else
    log_warning("{}", life.error().message());
}

ShimHost::~ShimHost() {
  for (const auto& [process, mapping] : slots_) {
    open_gate(*mapping->slot);
    set_run_until(*mapping->slot, 0);
    // A program with a small partition would stay there for ever, with nobody beside it.
    for (ShimGpu& gpu : mapping->slot->gpus) gpu.wanted.store(0, std::memory_order_relaxed);
  }
  ::unlink(path_.c_str());
}

ShimHost::Mapping::~Mapping() { ::munmap(slot, kShimSlotBytes); }

int ShimHost::serve() {
  const Time now = MonotonicClock().now();
  int asked = 0, given = 0;
  for (int looked_at = 0; looked_at < kMostAccepted && asked < kMostWelcomed; ++looked_at) {
    const Fd connection(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.is_open()) break;  // none left, or no descriptors: the next call tries again
    const auto welcomed = welcome(connection, now);
    if (!welcomed) log_warning("{}", welcomed.error().message());
    asked += !welcomed || *welcomed != Welcome::kSentAway;
    given += welcomed && *welcomed == Welcome::kHasSlot;
  }
  return given;
}

Result<ShimHost::Welcome> ShimHost::welcome(const Fd& connection, Time now) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
    return errno_error("identify a process");
  if (has_hung_up(connection) || !budget_.take(peer.uid, now)) return Welcome::kSentAway;
  const ProcessId process{peer.pid, start_ticks_of(peer.pid)};
  if (process.start_ticks == 0) return Welcome::kAsked;
  const ShimRequest request = decide_(process, peer.uid);
  if ((request.features & kShimFeatures) == 0) return Welcome::kAsked;
  if (!has_room(process, peer.uid))
    return make_error(std::errc::no_buffer_space, "hand a process its slot",
                      std::to_string(process.pid));
  const auto descriptor = make_slot(process, peer.uid, request);
  if (!descriptor) return std::unexpected(descriptor.error());
  if (auto sent = send_descriptors(connection, *descriptor, wakes_.add(process),
                                   life_ == nullptr ? -1 : life_->fd());
      !sent)
    return std::unexpected(sent.error());
  return Welcome::kHasSlot;
}

bool ShimHost::has_room(const ProcessId& process, uid_t user) const {
  if (slots_.contains(process)) return true;
  const auto own =
      std::ranges::count_if(slots_, [&](const auto& entry) { return entry.second->user == user; });
  return slots_.size() < kMostSlots && static_cast<std::size_t>(own) < kMostSlotsOfUser;
}

Result<Fd> ShimHost::make_slot(const ProcessId& process, uid_t user, const ShimRequest& request) {
  constexpr const char* kStep = "make the slot of a process";
  Fd file(::memfd_create("gpushare-shim", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) return errno_error(kStep);
  if (::ftruncate(file.get(), kShimSlotBytes) != 0) return errno_error(kStep);
  // Without the seals a process could take the page from the agent by making its file shorter.
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return errno_error(kStep);
  void* mapped = ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) return errno_error(kStep);
  auto owner = open_pidfd(process.pid, process.start_ticks, kStep);
  if (!owner) {
    ::munmap(mapped, kShimSlotBytes);
    return std::unexpected(owner.error());
  }
  auto mapping = std::make_unique<Mapping>(static_cast<ShimSlot*>(mapped), std::move(*owner), user);

  ShimSlot& slot = *mapping->slot;
  const std::size_t gpus = std::min<std::size_t>(request.gpus.size(), kShimGpus);
  slot.head.magic = kShimMagic;
  slot.head.version = kShimVersion;
  slot.head.bytes = kShimSlotBytes;
  slot.head.features = request.features & kShimFeatures;
  for (std::size_t i = 0; i < gpus; ++i) add_gpu(slot, static_cast<uint32_t>(i), request.gpus[i]);
  if (request.mps_pipe.size() < sizeof slot.mps_pipe)
    request.mps_pipe.copy(slot.mps_pipe, sizeof slot.mps_pipe - 1);
  slot.beat_ns.store(stored_ns(now_), std::memory_order_relaxed);
  slot.gate.store(request.is_closed ? 1 : 0, std::memory_order_relaxed);
  slot.iterations.run_until.store(request.run_until, std::memory_order_relaxed);
  slot.credit.most_ahead_us.store(request.most_ahead_us, std::memory_order_relaxed);
  request.is_closed ? close_credit(slot) : open_credit(slot);
  if ((slot.head.features & kShimCredit) != 0)
    if (const auto told = SlotKeeper::report(process, file, mapping->process); !told)
      log_warning("{}", told.error().message());
  slots_[process] = std::move(mapping);
  return file;
}

void ShimHost::beat(Time now) {
  now_ = now;
  for (const auto& [process, mapping] : slots_) {
    ShimSlot& slot = *mapping->slot;
    slot.beat_ns.store(stored_ns(now), std::memory_order_relaxed);
    const bool is_closed = (slot.gate.load(std::memory_order_relaxed) & 1) != 0;
    const uint64_t gave_up = slot.gave_up.load(std::memory_order_relaxed);
    if (std::exchange(mapping->gave_up, gave_up) != gave_up && is_closed) close_again(slot);
    if (!is_closed && is_credit_stale(slot)) open_credit(slot);
  }
  if (now < next_sweep_) return;
  next_sweep_ = now + kSweep;
  std::vector<pollfd> ends;
  ends.reserve(slots_.size());
  for (const auto& [process, mapping] : slots_)
    ends.push_back({.fd = mapping->process.get(), .events = POLLIN, .revents = 0});
  if (ends.empty() || ::poll(ends.data(), ends.size(), 0) <= 0) return;
  std::size_t at = 0;
  std::erase_if(slots_, [&](const auto& entry) {
    if (ends[at++].revents == 0) return false;
    wakes_.remove(entry.first);
    return true;
  });
}

ShimSlot* ShimHost::find(const ProcessId& process) const {
  const auto found = slots_.find(process);
  return found == slots_.end() ? nullptr : found->second->slot;
}

std::vector<ProcessId> ShimHost::processes() const {
  std::vector<ProcessId> all;
  all.reserve(slots_.size());
  for (const auto& entry : slots_) all.push_back(entry.first);
  return all;
}

void ShimHost::add_gpu(ShimSlot& slot, uint32_t place, const ShimRequest::Gpu& added) {
  ShimGpu& gpu = slot.gpus[place];
  added.pci.copy(gpu.pci, sizeof gpu.pci - 1);
  gpu.wanted.store(added.groups, std::memory_order_relaxed);
  slot.sms_shown[place].store(added.sms_shown, std::memory_order_relaxed);
  slot.head.gpu_count.store(place + 1, std::memory_order_release);
}

void ShimHost::close_gate(ShimSlot& slot) {
  const bool was_open = (slot.gate.load(std::memory_order_relaxed) & 1) == 0;
  if (was_open) step(slot.gate);  // first, so that no more comes in line
  // The process may have opened its word itself, or its shim while we did not beat.
  if (was_open || is_credit_open(slot)) close_credit(slot);
}

void ShimHost::open_gate(ShimSlot& slot) {
  if ((slot.gate.load(std::memory_order_relaxed) & 1) == 0) return;
  open_credit(slot);
  step(slot.gate);
}

void ShimHost::set_run_until(ShimSlot& slot, uint64_t begun) {
  slot.iterations.run_until.store(begun, std::memory_order_release);
  step(slot.iterations.turn);
}

std::optional<PublishedIterations> ShimHost::iterations(const ShimSlot& slot) {
  PublishedIterations known;
  if (!read_published(slot.iterations, &known)) return std::nullopt;
  return known;
}

}  // namespace gpushare
