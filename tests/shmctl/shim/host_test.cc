// SPDX-License-Identifier: Apache-2.0
// What one user's flood of connections may cost. This process connects; other users are children of
// it, which only root can make.
#include "shmctl/shim/host.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shmctl/base/unix_socket.h"
#include "shmctl/program/temp_folder.h"
#include "shmctl/shim/credit.h"
#include "shmctl/shim/protocol.h"

namespace gpushare {
namespace {

class ShimHostTest : public ::testing::Test {
 protected:
  // A connection on which nothing is said, as programs that wait for their slot have.
  Fd ask() { return connect_to_socket(path_, "ask for a slot").value(); }
  bool has_slot(const Fd& connection) {
    DescriptorMessage message;
    if (::recvmsg(connection.get(), message.get(), MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1)
      return false;
    return Fd(message.taken().slot).is_open();
  }

  const TempFolder folder_ = TempFolder::make("gpushare-host").value();
  const std::string path_ = folder_.path() + "/shim.sock";
  int decided_ = 0;
  std::vector<ShimRequest::Gpu> gpus_;  // that a process is to share
  std::unique_ptr<ShimHost> host_ = ShimHost::listen(path_, [this](const ProcessId&, uid_t) {
                                      ++decided_;
                                      return ShimRequest{.features = kShimGate, .gpus = gpus_};
                                    }).value();
};

TEST_F(ShimHostTest, ACallGivesAFewSlotsOnly) {
  std::vector<Fd> waiting;
  for (int i = 0; i < 3 * ShimHost::kMostWelcomed; ++i) waiting.push_back(ask());
  EXPECT_EQ(host_->serve(), ShimHost::kMostWelcomed);
  EXPECT_EQ(decided_, ShimHost::kMostWelcomed);
  host_->serve();
  host_->serve();
  for (const Fd& connection : waiting) EXPECT_TRUE(has_slot(connection));
}

// Nobody is there any more who would give it back what others do not use.
TEST_F(ShimHostTest, AnAgentThatStopsGivesEachProcessTheWholeGpu) {
  gpus_ = {{.pci = "0000:3b:00.0", .groups = 0b1}, {.pci = "0000:86:00.0", .groups = 0b110}};
  const Fd connection = ask();
  host_->serve();
  DescriptorMessage message;
  ASSERT_EQ(::recvmsg(connection.get(), message.get(), MSG_CMSG_CLOEXEC | MSG_DONTWAIT), 1);
  const Fd file(message.taken().slot);
  void* const mapped =
      ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto& slot = *static_cast<const ShimSlot*>(mapped);
  EXPECT_EQ(slot.gpus[0].wanted, 0b1u);
  host_.reset();
  EXPECT_EQ(slot.gpus[0].wanted, 0u);
  EXPECT_EQ(slot.gpus[1].wanted, 0u);
  ::munmap(mapped, kShimSlotBytes);
}

// It passes that closing for good, because it took us for dead.
TEST_F(ShimHostTest, AClosingThatAThreadHasGivenUpAtIsMadeAgain) {
  const Fd connection = ask();
  host_->serve();
  ShimSlot& slot = *host_->find(host_->processes().at(0));
  const auto beat = [&] { host_->beat(MonotonicClock().now()); };
  ShimHost::close_gate(slot);
  beat();
  EXPECT_EQ(slot.gate, 1u);
  open_credit(slot);  // as the shim does
  slot.gave_up = 2;
  beat();
  EXPECT_EQ(slot.gate, 3u);
  EXPECT_FALSE(is_credit_open(slot));
  beat();
  EXPECT_EQ(slot.gate, 3u) << "once is enough";
  ShimHost::open_gate(slot);
  slot.gave_up = 3;  // at the boundary of an iteration
  beat();
  EXPECT_EQ(slot.gate, 4u) << "nobody is held there";
  EXPECT_TRUE(is_credit_open(slot));
  ShimHost::close_gate(slot);
  beat();
  EXPECT_EQ(slot.gate, 5u);
}

TEST_F(ShimHostTest, WhoAsksTooOftenIsSentAwayAndCostsNoSlot) {
  const int before = decided_;
  const Time start = MonotonicClock().now();
  int sent_away = 0;
  for (uint32_t i = 0; i < 3 * ShimHost::kSlotBurst; ++i) {
    const Fd connection = ask();
    host_->serve();
    sent_away += !has_slot(connection);
  }
  // However slow this machine is, the budget has grown with the time only.
  const auto grown = static_cast<int>((MonotonicClock().now() - start) / ShimHost::kBetweenSlots);
  EXPECT_LE(decided_ - before, static_cast<int>(ShimHost::kSlotBurst) + grown + 1);
  EXPECT_GE(sent_away, 2 * static_cast<int>(ShimHost::kSlotBurst) - grown - 1);
}

TEST_F(ShimHostTest, AnotherUserIsServedDuringAFlood) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  while (true) {  // until this user has nothing left
    const Fd connection = ask();
    host_->serve();
    if (!has_slot(connection)) break;
  }
  const pid_t other = ::fork();
  if (other == 0) {
    if (::setuid(12'345) != 0) ::_exit(2);
    const auto connection = connect_to_socket(path_, "ask for a slot");
    if (!connection) ::_exit(3);
    DescriptorMessage message;
    ::_exit(::recvmsg(connection->get(), message.get(), MSG_CMSG_CLOEXEC) == 1 ? 0 : 1);
  }
  int status = 0;
  while (::waitpid(other, &status, WNOHANG) == 0) {
    const Fd flood = ask();
    host_->serve();
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace gpushare
