// SPDX-License-Identifier: Apache-2.0
// Numbers as bytes, in the file of the usage history: LEB128, so that small ones are short. Pure;
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpushare {

inline void put_number(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

// Reads what put_number() wrote. Once something is not there it is_bad(), and gives nothing more.
class NumberReader {
 public:
  explicit NumberReader(std::string_view bytes) : bytes_(bytes) {}

  uint64_t next() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) break;
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }
  // The next bytes as they are; fewer than `count` are none.
  std::string_view take(size_t count) {
    if (count > bytes_.size()) {
      fail();
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::string_view rest() const { return bytes_; }
  bool is_at_end() const { return bytes_.empty(); }
  bool is_bad() const { return is_bad_; }

 private:
  void fail() {
    is_bad_ = true;
    bytes_ = {};
  }

  std::string_view bytes_;
  bool is_bad_ = false;
};

}  // namespace gpushare
