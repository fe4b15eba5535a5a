// SPDX-License-Identifier: Apache-2.0
// Samples as bytes, alone and packed.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>

#include "shmctl/usage/pack.h"
#include "tests/shmctl/usage/usage_rig.h"

namespace gpushare::test {
namespace {

TEST(UsageCodec, WhatIsWrittenIsRead) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    NumberedSample sample{.watched_ms = random() >> (random() % 64), .amounts = {}};
    for (uint64_t i = random() % 20; i > 0; --i) {
      const auto some = [&] { return random() % 3 == 0 ? 0 : random() >> (random() % 64); };
      sample.amounts[static_cast<uint32_t>(random())] = {some(), some(), some(), some(), some(),
                                                         some(), some(), some(), some()};
    }
    EXPECT_EQ(decode_sample(encode_sample(sample)), sample);
  }
}

TEST(UsageCodec, AnyBytesAreASampleOrNone) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 5000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (const auto sample = decode_sample(bytes)) {
      EXPECT_EQ(decode_sample(encode_sample(*sample)), *sample);
    }
  }
  EXPECT_EQ(decode_sample("\xFF"), std::nullopt);
}

NumberedSamples samples_like_measured_ones(std::mt19937_64& random, uint32_t count) {
  NumberedSamples samples;
  WallSeconds start = static_cast<WallSeconds>(random() % 3) * kBegin - 1000;
  for (uint32_t i = 0; i < count; ++i) {
    NumberedSample& sample = samples[start += 1 + static_cast<WallSeconds>(random() % 20)];
    sample.watched_ms = 10'000 - random() % 3;
    for (uint32_t series = 0; series < 40; ++series) {
      if (random() % 4 == 0) continue;
      const auto some = [&](uint64_t most) {
        return random() % 9 == 0 ? random() : random() % most;
      };
      sample.amounts[series * series] = {.used_ms = 1 + some(40),
                                         .entitled_ms = uint64_t{100} * i,
                                         .waiting_ms = series % 2 == 0 ? some(2000) : 0,
                                         .p99_us = series == 7 ? 70'000 + some(400) : 0,
                                         .target_us = series == 7 ? 80'000U : 0};
    }
  }
  return samples;
}

TEST(UsagePack, WhatIsPackedIsUnpacked) {
  std::mt19937_64 random(3);
  for (const uint32_t count : {1U, 2U, 7U, 180U}) {
    const NumberedSamples samples = samples_like_measured_ones(random, count);
    EXPECT_EQ(decode_pack(encode_pack(samples)), samples);
  }
  EXPECT_EQ(decode_pack(encode_pack({{-7, {.watched_ms = UINT64_MAX, .amounts = {}}}})),
            (NumberedSamples{{-7, {.watched_ms = UINT64_MAX, .amounts = {}}}}));
}

TEST(UsagePack, AByteThatIsWrongIsNoticed) {
  std::mt19937_64 random(4);
  const std::string good = encode_pack(samples_like_measured_ones(random, 20));
  for (int round = 0; round < 500; ++round) {
    std::string bytes = good;
    char& byte = bytes[random() % bytes.size()];
    byte = static_cast<char>(byte ^ (1 << random() % 8));
    EXPECT_EQ(decode_pack(bytes), std::nullopt);
    EXPECT_EQ(decode_pack(std::string_view(good).substr(0, random() % good.size())), std::nullopt);
  }
}

}  // namespace
}  // namespace gpushare::test
