// SPDX-License-Identifier: Apache-2.0
#include "shmctl/shim/published.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace gpushare {
namespace {

TEST(Published, ARecordIsNeverMixed) {
  const auto words = std::make_unique<ShimIterations>();
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    for (uint64_t n = 1; !is_over; ++n)
      publish(*words, {.confidence = static_cast<uint32_t>(n),
                       .begun = n,
                       .ended = n,
                       .period_ns = n,
                       .busy_ns = n,
                       .latency_ns = n,
                       .began_ns = n});
  });
  int read = 0;
  while (read < 20'000) {
    PublishedIterations known;
    if (!read_published(*words, &known)) continue;
    ++read;
    ASSERT_EQ(known.begun, known.ended);
    ASSERT_EQ(known.begun, known.period_ns);
    ASSERT_EQ(known.begun, known.busy_ns);
    ASSERT_EQ(known.begun, known.latency_ns);
    ASSERT_EQ(known.begun, known.began_ns);
    ASSERT_EQ(static_cast<uint32_t>(known.begun), known.confidence);
  }
  is_over = true;
  writer.join();
}

TEST(Published, AWriterThatDiedInTheMiddleIsNotWaitedFor) {
  const auto words = std::make_unique<ShimIterations>();
  words->sequence = 3;
  PublishedIterations known;
  EXPECT_FALSE(read_published(*words, &known));
  publish(*words, {.begun = 5});
  EXPECT_TRUE(read_published(*words, &known));
  EXPECT_EQ(known.begun, 5u);
}

}  // namespace
}  // namespace gpushare
