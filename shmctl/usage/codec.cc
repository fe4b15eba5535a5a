// SPDX-License-Identifier: Apache-2.0
#include "shmctl/usage/codec.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gpushare {
namespace {

// Those that are sums, in the order of their bits; the p99 and the target share the last bit.
constexpr std::array kMembers = {&UsageAmounts::used_ms,      &UsageAmounts::entitled_ms,
                                 &UsageAmounts::waiting_ms,   &UsageAmounts::throttled_ms,
                                 &UsageAmounts::stopped_ms,   &UsageAmounts::iterations,
                                 &UsageAmounts::iterations_us};
constexpr unsigned kLatencyBit = 7;

void put(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

// Reads numbers until one is not there.
class Numbers {
 public:
  explicit Numbers(std::string_view bytes) : bytes_(bytes) {}

  uint64_t next() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) break;
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    is_bad_ = true;
    return 0;
  }
  bool is_at_end() const { return bytes_.empty(); }
  bool is_bad() const { return is_bad_; }

 private:
  std::string_view bytes_;
  bool is_bad_ = false;
};

}  // namespace

UsageAmounts& UsageAmounts::operator+=(const UsageAmounts& other) {
  for (const auto member : kMembers) this->*member += other.*member;
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
  put(out, sample.watched_ms);
  uint32_t before = 0;
  for (const auto& [number, amounts] : sample.amounts) {
    uint8_t mask = 0;
    for (size_t i = 0; i < kMembers.size(); ++i)
      if (amounts.*kMembers[i] != 0) mask |= static_cast<uint8_t>(1U << i);
    if (amounts.p99_us != 0 || amounts.target_us != 0) mask |= 1U << kLatencyBit;
    put(out, number - std::exchange(before, number));
    put(out, mask);
    for (size_t i = 0; i < kMembers.size(); ++i)
      if ((mask >> i & 1U) != 0) put(out, amounts.*kMembers[i]);
    if ((mask >> kLatencyBit & 1U) != 0) {
      put(out, amounts.p99_us);
      put(out, amounts.target_us);
    }
  }
  return out;
}

std::optional<NumberedSample> decode_sample(std::string_view bytes) {
  Numbers numbers(bytes);
  NumberedSample sample;
  sample.watched_ms = numbers.next();
  uint64_t number = 0;
  while (!numbers.is_bad() && !numbers.is_at_end()) {
    number += numbers.next();
    const uint64_t mask = numbers.next();
    UsageAmounts amounts;
    for (size_t i = 0; i < kMembers.size(); ++i)
      if ((mask >> i & 1U) != 0) amounts.*kMembers[i] = numbers.next();
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
