// SPDX-License-Identifier: Apache-2.0
#include "shmctl/usage/codec.h"

#include <algorithm>
#include <span>
#include <utility>

#include "shmctl/usage/numbers.h"

namespace gpushare {
namespace {

// The p99 and the target share the last bit.
constexpr auto kSums = std::span(kUsageMembers).first<kUsageSums>();
constexpr unsigned kLatencyBit = kUsageSums;

}  // namespace

UsageAmounts& UsageAmounts::operator+=(const UsageAmounts& other) {
  for (const auto member : kSums) this->*member += other.*member;
  p99_us = std::max(p99_us, other.p99_us);
  if (other.target_us != 0) target_us = other.target_us;
  return *this;
}

UsageSample& UsageSample::operator+=(const UsageSample& other) {
  watched_ms += other.watched_ms;
  for (const auto& [series, amounts_of] : other.amounts) amounts[series] += amounts_of;
  return *this;
}

UsageJobAmounts& UsageJobAmounts::operator+=(const UsageJobAmounts& other) {
  used_ms += other.used_ms;
  waiting_ms += other.waiting_ms;
  throttled_ms += other.throttled_ms;
  return *this;
}

std::string encode_sample(const NumberedSample& sample) {
  std::string out;
  put_number(out, sample.watched_ms);
  uint32_t before = 0;
  for (const auto& [number, amounts] : sample.amounts) {
    uint8_t mask = 0;
    for (size_t i = 0; i < kSums.size(); ++i)
      if (amounts.*kSums[i] != 0) mask |= static_cast<uint8_t>(1U << i);
    if (amounts.p99_us != 0 || amounts.target_us != 0) mask |= 1U << kLatencyBit;
    put_number(out, number - std::exchange(before, number));
    put_number(out, mask);
    for (size_t i = 0; i < kSums.size(); ++i)
      if ((mask >> i & 1U) != 0) put_number(out, amounts.*kSums[i]);
    if ((mask >> kLatencyBit & 1U) != 0) {
      put_number(out, amounts.p99_us);
      put_number(out, amounts.target_us);
    }
  }
  return out;
}

std::optional<NumberedSample> decode_sample(std::string_view bytes) {
  NumberReader numbers(bytes);
  NumberedSample sample;
  sample.watched_ms = numbers.next();
  uint64_t number = 0;
  while (!numbers.is_bad() && !numbers.is_at_end()) {
    number += numbers.next();
    const uint64_t mask = numbers.next();
    UsageAmounts amounts;
    for (size_t i = 0; i < kSums.size(); ++i)
      if ((mask >> i & 1U) != 0) amounts.*kSums[i] = numbers.next();
    if ((mask >> kLatencyBit & 1U) != 0) {
      amounts.p99_us = numbers.next();
      amounts.target_us = numbers.next();
    }
    if (number > UINT32_MAX || mask > 0xFF) return std::nullopt;
    sample.amounts.emplace(static_cast<uint32_t>(number), amounts);
  }
  if (numbers.is_bad()) return std::nullopt;
  return sample;
}

}  // namespace gpushare
