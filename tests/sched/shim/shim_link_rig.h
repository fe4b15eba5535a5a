// SPDX-License-Identifier: Apache-2.0
// An agent's end towards the shim, with this process as one with the shim, and others.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sched/shim/shim_link.h"
#include "sched/step/views.h"
#include "shmctl/base/proc_stat.h"
#include "shmctl/base/unix_socket.h"
#include "shmctl/shim/protocol.h"
#include "tests/sched/support/policies.h"

namespace gpushare::test {

inline constexpr const char* kSpatial = "[gpu.0]\nsharing = 'spatial'\n";
inline constexpr const char* kByTarget = "[gpu.0]\nsharing = 'spatial'\npolicy = 'slo'\n";

inline ShimSlot* map_slot(const Fd& file) {
  void* const mapped =
      ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<ShimSlot*>(mapped);
}

// Another process with the shim, whose slot this one reads and writes: it has connected, by a
// socket that both have.
class OtherProcess {
 public:
  explicit OtherProcess(const std::string& path) : socket_(unix_socket()) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const sockaddr_un address = address_of(path);
      (void)::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
      while (true) ::pause();
    }
  }
  ~OtherProcess() {
    if (slot_ != nullptr) ::munmap(slot_, kShimSlotBytes);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ProcessId id() const { return {pid_, start_ticks_of(pid_)}; }
  // `serve`: has the agent answer who has connected.
  void connect(const std::function<void()>& serve) {
    DescriptorMessage message;
    do {
      serve();
      ::poll(nullptr, 0, 1);
    } while (::recvmsg(socket_.get(), message.get(), MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1);
    const auto taken = message.taken();
    const Fd file(taken.slot), wake(taken.wake);
    slot_ = map_slot(file);
    ASSERT_NE(slot_, nullptr);
  }
  ShimSlot* slot() const { return slot_; }

 private:
  static Fd unix_socket() { return Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  static sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    return address;
  }

  const Fd socket_;
  pid_t pid_ = 0;
  ShimSlot* slot_ = nullptr;
};

class ShimLinkTest : public ::testing::Test {
 protected:
  ~ShimLinkTest() override {
    if (slot_ != nullptr) ::munmap(slot_, kShimSlotBytes);
  }
  // Our slot; nullptr: we got none.
  ShimSlot* connect() {
    const auto socket = connect_to_socket(path_, "ask for a slot");
    if (!socket) return nullptr;
    link_->serve();
    DescriptorMessage message;
    if (::recvmsg(socket->get(), message.get(), MSG_CMSG_CLOEXEC) != 1) return nullptr;
    const auto taken = message.taken();
    const Fd file(taken.slot);
    wake_ = Fd(taken.wake);
    slot_ = map_slot(file);
    return slot_;
  }
  // Of now on, as a configuration says.
  void share(std::string_view text) {
    const Config config = parse(text).value();
    link_->set_gpus(gpus_, config);
    gpu_.is_spatial = config.gpu(0).is_spatial;
    policy_ = config.gpu(0).policy.make(gpu_);
  }
  void step() {
    const Time now = MonotonicClock().now();
    link_->read(now, Registry(gpus_));
    Views views;
    views.join(link_->views(0));
    views.add_tenants(0, tenants_, *region_, link_.get());
    plan_ = policy_->plan(views.snapshot(now, gpu_));
    link_->apply(now, 0, plan_, views.processes());
    link_->finish(now);
  }
  uint32_t entitled() const { return link_->partition(kDefaultTenant, 0).entitled; }
  bool is_closed() const { return (slot_->gate & 1) != 0; }
  // The program's first launch, which is counted before it comes to the gate.
  void launch() { slot_->stripes[0].launches.fetch_add(1, std::memory_order_relaxed); }
  void give_default_a_part() {
    const std::vector<Setting> half{{"sm_percent", "50"}};
    ASSERT_TRUE(tenants_.set(kDefaultTenantName, half, false));
  }

  const std::string path_ = ::testing::TempDir() + "/shim-link-" + std::to_string(::getpid());
  const std::vector<GpuInfo> gpus_{{.index = 0,
                                    .instance = 0,
                                    .uuid = {},
                                    .name = {},
                                    .pci = "0000:1b:00.0",
                                    .sm_count = 132,
                                    .memory_bytes = 0}};
  const SystemProcReader processes_;
  Tenants tenants_;
  const std::unique_ptr<Region> region_ = std::make_unique<Region>();
  ManualClock clock_;  // behind the time of a step, unless a test says otherwise
  std::unique_ptr<ShimLink> link_ =
      ShimLink::listen(path_, tenants_, processes_, *region_, clock_).value();
  GpuView gpu_{};
  std::unique_ptr<Policy> policy_;
  Plan plan_;
  ShimSlot* slot_ = nullptr;
  Fd wake_{-1};  // by which the program wakes the agent
};

}  // namespace gpushare::test
