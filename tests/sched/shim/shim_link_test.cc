// SPDX-License-Identifier: Apache-2.0
// This process as one with the shim.
#include "sched/shim/shim_link.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shmctl/base/unix_socket.h"
#include "shmctl/shim/protocol.h"

namespace gpushare {
namespace {

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
    const Fd file(message.taken());
    void* mapped =
        ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (mapped != MAP_FAILED) slot_ = static_cast<ShimSlot*>(mapped);
    return slot_;
  }
  bool is_closed() const { return (slot_->gate & 1) != 0; }
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
  std::unique_ptr<ShimLink> link_ = ShimLink::listen(path_, tenants_, processes_).value();
  ShimSlot* slot_ = nullptr;
};

TEST_F(ShimLinkTest, WhoseTenantHasNoPartGetsNoSlot) {
  link_->set_gpus(gpus_);
  EXPECT_EQ(connect(), nullptr);
}

TEST_F(ShimLinkTest, AProcessIsLetInWithItsTenantsPart) {
  give_default_a_part();
  link_->set_gpus(gpus_);
  ASSERT_NE(connect(), nullptr);
  EXPECT_TRUE(is_closed());
  link_->step(MonotonicClock().now(), nullptr);
  EXPECT_FALSE(is_closed());
  EXPECT_EQ(slot_->gpus[0].wanted, 0u) << "alone it has the whole GPU, for now";
  EXPECT_EQ(link_->part(kDefaultTenant, 0).entitled, 64u);
}

TEST_F(ShimLinkTest, WherePartsGoByTargetTimesEveryoneIsConfinedAndMeasured) {
  link_->set_gpus(gpus_, {.gpus = {0}, .knees = {}});
  ASSERT_NE(connect(), nullptr);
  EXPECT_EQ(slot_->head.features, kShimFeatures);
  link_->step(MonotonicClock().now(), nullptr);
  EXPECT_FALSE(is_closed());
  const SmPart part = link_->part(kDefaultTenant, 0);
  ASSERT_TRUE(part.slo);
  EXPECT_EQ(part.slo->state, SloState::kRest);
  EXPECT_EQ(slot_->gpus[0].sms, 132u);
  EXPECT_EQ(slot_->gpus[0].sms_entitled, part.entitled) << "its program may read it";
}

TEST_F(ShimLinkTest, AnotherPolicyTakesOverTheProcessesThatAreThere) {
  give_default_a_part();
  link_->set_gpus(gpus_);
  ASSERT_NE(connect(), nullptr);
  link_->step(MonotonicClock().now(), nullptr);
  ASSERT_EQ(link_->part(kDefaultTenant, 0).entitled, 64u);
  link_->set_gpus(gpus_, {.gpus = {0}, .knees = {}});
  link_->step(MonotonicClock().now(), nullptr);
  EXPECT_TRUE(link_->part(kDefaultTenant, 0).slo);
  EXPECT_NE(link_->part(kDefaultTenant, 0).entitled, 0u) << "its place is not lost";
}

TEST_F(ShimLinkTest, WhoStandsAtTheGateWhenTheGpusChangeGoesIn) {
  give_default_a_part();
  link_->set_gpus(gpus_);
  ASSERT_NE(connect(), nullptr);
  EXPECT_TRUE(is_closed());
  link_->set_gpus({});
  EXPECT_FALSE(is_closed());
}

}  // namespace
}  // namespace gpushare
