// SPDX-License-Identifier: Apache-2.0
// A pack is the length of what follows without compression, and this, compressed:
//   the number of samples; the first one's begin, and how much later each other one begins; the
//   column of the times that were watched; the number of series; of each, in the order of their
//   numbers, how far its number lies beyond the one before, and a mask of the amounts it has; and
//   for each amount, in the order of kUsageMembers, the columns of all series that have it.
// A column has one number for each sample:
//   kFromLeast or kFromBefore, plus twice the bytes that a difference takes; the least number, or
//   the first one; and the differences, all of their lowest bytes first.
#include "shmctl/usage/pack.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "shmctl/usage/numbers.h"

namespace gpushare {
namespace {

constexpr uint64_t kFromLeast = 0, kFromBefore = 1;
// More than an encoder makes of kMostPackedCells, whose columns have nine numbers of eight bytes.
constexpr uint64_t kMostPackBytes = 64 << 20;

// Numbers near zero, of either sign, as small ones without a sign.
uint64_t folded(uint64_t difference) {
  return difference << 1 ^ (difference >> 63 != 0 ? ~uint64_t{0} : 0);
}
uint64_t unfolded(uint64_t number) { return number >> 1 ^ ((number & 1) != 0 ? ~uint64_t{0} : 0); }

void put_column(std::string& out, const std::vector<uint64_t>& values) {
  const uint64_t least = std::ranges::min(values);
  std::vector<uint64_t> from_least, from_before;
  int bits_of_least = 0, bits_of_before = 0;
  uint64_t before = values.front();
  for (const uint64_t value : values) {
    from_least.push_back(value - least);
    from_before.push_back(folded(value - std::exchange(before, value)));
    bits_of_least += std::bit_width(from_least.back());
    bits_of_before += std::bit_width(from_before.back());
  }
  const bool is_from_before = bits_of_before < bits_of_least;
  const auto& differences = is_from_before ? from_before : from_least;
  const uint64_t width = (std::bit_width(std::ranges::max(differences)) + 7) / 8;
  put_number(out, (is_from_before ? kFromBefore : kFromLeast) | width << 1);
  put_number(out, is_from_before ? values.front() : least);
  for (uint64_t byte = 0; byte < width; ++byte)
    for (const uint64_t difference : differences)
      out += static_cast<char>(difference >> (8 * byte) & 0xFF);
}

// Empty: it is bad.
std::vector<uint64_t> take_column(NumberReader& numbers, size_t count) {
  const uint64_t form = numbers.next(), base = numbers.next(), width = form >> 1;
  if (width > 8) return {};
  const std::string_view bytes = numbers.take(width * count);
  if (numbers.is_bad()) return {};
  std::vector<uint64_t> values(count, 0);
  for (size_t i = 0; i < bytes.size(); ++i)
    values[i % count] |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * (i / count));
  uint64_t before = base;
  for (uint64_t& value : values) {
    value = (form & 1) == kFromLeast ? base + value : before + unfolded(value);
    before = value;
  }
  return values;
}

std::string compressed(const std::string& plain) {
  uLongf size = ::compressBound(plain.size());
  std::string out;
  put_number(out, plain.size());
  const size_t head = out.size();
  out.resize(head + size);
  ::compress2(reinterpret_cast<Bytef*>(out.data() + head), &size,
              reinterpret_cast<const Bytef*>(plain.data()), plain.size(), Z_BEST_COMPRESSION);
  out.resize(head + size);
  return out;
}

std::optional<std::string> expanded(std::string_view bytes) {
  NumberReader head(bytes);
  const uint64_t expected = head.next();
  if (head.is_bad() || expected > kMostPackBytes) return std::nullopt;
  const std::string_view rest = head.rest();
  std::string plain(expected, '\0');
  uLongf size = expected;
  if (::uncompress(reinterpret_cast<Bytef*>(plain.data()), &size,
                   reinterpret_cast<const Bytef*>(rest.data()), rest.size()) != Z_OK ||
      size != expected)
    return std::nullopt;
  return plain;
}

}  // namespace

std::string encode_pack(const NumberedSamples& samples) {
  const size_t count = samples.size();
  std::map<uint32_t, std::vector<UsageAmounts>> rows;
  std::vector<uint64_t> column;
  std::string out;
  put_number(out, count);
  uint64_t before = 0;
  for (const auto& [start, sample] : samples) {
    const auto begin = static_cast<uint64_t>(start);
    put_number(out, folded(begin - std::exchange(before, begin)));
    for (const auto& [number, amounts] : sample.amounts) {
      if (amounts == UsageAmounts{}) continue;
      auto& row = rows.try_emplace(number, count).first->second;
      row[column.size()] = amounts;
    }
    column.push_back(sample.watched_ms);
  }
  put_column(out, column);
  put_number(out, rows.size());
  std::vector<uint64_t> masks;
  uint32_t last = 0;
  for (const auto& [number, row] : rows) {
    uint64_t mask = 0;
    for (size_t i = 0; i < kUsageMembers.size(); ++i)
      if (std::ranges::any_of(row, [&](const auto& cell) { return cell.*kUsageMembers[i] != 0; }))
        mask |= uint64_t{1} << i;
    put_number(out, number - std::exchange(last, number));
    put_number(out, mask);
    masks.push_back(mask);
  }
  for (size_t i = 0; i < kUsageMembers.size(); ++i) {
    auto mask = masks.begin();
    for (const auto& [number, row] : rows) {
      if ((*mask++ >> i & 1) == 0) continue;
      column.clear();
      for (const UsageAmounts& cell : row) column.push_back(cell.*kUsageMembers[i]);
      put_column(out, column);
    }
  }
  return compressed(out);
}

std::optional<NumberedSamples> decode_pack(std::string_view bytes) {
  const auto plain = expanded(bytes);
  if (!plain) return std::nullopt;
  NumberReader numbers(*plain);
  const uint64_t count = numbers.next();
  // Each sample and each series takes a byte, so that no count is beyond what there is.
  if (count == 0 || count > plain->size()) return std::nullopt;
  std::vector<std::pair<WallSeconds, NumberedSample>> samples(count);
  uint64_t start = 0;
  for (auto& sample : samples)
    sample.first = static_cast<WallSeconds>(start += unfolded(numbers.next()));
  const auto watched = take_column(numbers, count);
  if (watched.empty()) return std::nullopt;
  for (size_t i = 0; i < count; ++i) samples[i].second.watched_ms = watched[i];
  const uint64_t series = numbers.next();
  if (series > plain->size() || (count > 1 && count * series > kMostPackedCells))
    return std::nullopt;
  struct Row {
    uint64_t number, mask;
  };
  std::vector<Row> rows(series);
  uint64_t number = 0;
  for (Row& row : rows) {
    row.number = number += numbers.next();
    row.mask = numbers.next();
    if (number > UINT32_MAX) return std::nullopt;
  }
  for (size_t member = 0; member < kUsageMembers.size(); ++member)
    for (const Row& row : rows) {
      if ((row.mask >> member & 1) == 0) continue;
      const auto column = take_column(numbers, count);
      if (column.empty()) return std::nullopt;
      for (size_t i = 0; i < count; ++i)
        if (column[i] != 0)
          samples[i].second.amounts[static_cast<uint32_t>(row.number)].*kUsageMembers[member] =
              column[i];
    }
  if (numbers.is_bad() || !numbers.is_at_end()) return std::nullopt;
  return NumberedSamples(samples.begin(), samples.end());
}

}  // namespace gpushare
