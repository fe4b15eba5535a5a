// SPDX-License-Identifier: Apache-2.0
// Since when a process has surely had nothing to do, by the switch log.
#include <gtest/gtest.h>

#include "sched/account/accounting.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr pid_t kRests = 10, kHasGpu = 20;

Time after(Nanos since_start) { return Time(100s) + since_start; }

// Both have slices of 2 ms. A turn of the first ends at 10 ms, and the second has had the GPU
// since.
class RestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const pid_t pid : {kRests, kHasGpu}) {
      accounting_.add(pid, after({}));
      accounting_.set_slice(pid, 2ms);
    }
    consume({}, {});
    consume(11ms, {{after(9ms), 0, kRests, 0, true},
                   {after(10ms), 0, kRests, 0, false},
                   {after(10080us), 0, kHasGpu, 0, true}});
  }
  void consume(Nanos until, std::vector<SwitchRecord> records = {}, uint64_t lost = 0) {
    accounting_.consume({std::move(records), lost, after(until)});
  }
  // For how long it has rested, when the log has told so much and nothing of anybody.
  Nanos rest_at(Nanos until, pid_t pid = kRests) {
    consume(until);
    return accounting_.rest(pid);
  }

  Accounting accounting_{/*has_log=*/true};
};

TEST_F(RestTest, WhoIsNotOnTheGpuRestsSinceItWas) {
  EXPECT_EQ(rest_at(40ms), 30ms);
  EXPECT_EQ(accounting_.rest(kHasGpu), 0ms) << "it has the GPU, busy or not";
  EXPECT_EQ(accounting_.rest(30), 0ms) << "nobody";
  consume(60ms, {{after(50ms), 0, kHasGpu, 0, false}, {after(50080us), 0, kRests, 0, true}});
  EXPECT_EQ(accounting_.rest(kRests), 0ms);
}

TEST_F(RestTest, WhoMayWaitForTheSlicesOfOthersMayHaveWork) {
  accounting_.set_slice(kHasGpu, 200ms);
  EXPECT_EQ(rest_at(210ms), 0ms);  // the round is taken anew every 100 ms
  EXPECT_EQ(rest_at(400ms), 390ms);
}

TEST_F(RestTest, WhoIsFrozenMayHaveWorkUntilItHasBeenThawed) {
  accounting_.set_frozen(kRests, true, after(12ms));
  EXPECT_EQ(rest_at(100ms), 0ms);
  accounting_.set_frozen(kRests, false, after(110ms));
  EXPECT_EQ(rest_at(140ms), 30ms);
}

// A context that is frozen stays the last one that the log has named.
TEST_F(RestTest, TheGpuIsFreeWhileTheLastOneOnItIsFrozen) {
  accounting_.set_frozen(kHasGpu, true, after(20ms));
  EXPECT_EQ(rest_at(60ms), 50ms);
}

TEST_F(RestTest, NothingIsSaidOfWhatIsNotKnown) {
  accounting_.add(30, after(11ms));  // a client of MPS: the log names its server
  EXPECT_EQ(rest_at(60ms, 30), 0ms);
  consume(80ms, {}, /*lost=*/3);
  EXPECT_EQ(accounting_.rest(kRests), 0ms) << "it may have the GPU";
  Accounting without(/*has_log=*/false);
  without.add(kRests, after({}));
  EXPECT_EQ(without.rest(kRests), 0ms);
}

}  // namespace
}  // namespace gpushare
