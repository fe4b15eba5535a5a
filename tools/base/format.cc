// SPDX-License-Identifier: Apache-2.0
#include "tools/base/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "shmctl/plane/layout.h"
#include "tools/base/characters.h"

namespace gpushare {
std::string percent_text(uint32_t permille) {
  if (permille == kUnknown32) return kUnknownText;
  return fmt::format("{}.{}%", permille / 10, permille % 10);
}

std::string bytes_text(uint64_t bytes) {
  if (bytes == kUnknown64) return kUnknownText;
  constexpr std::string_view kSuffixes = "KMGTPE";
  if (bytes < 1024) return fmt::format("{}B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t suffix = 0;
  while (value >= 999.5) {  // it would print as 1000: the next suffix keeps it at three digits
    value /= 1024;
    ++suffix;
  }
  return fmt::format("{:.{}f}{}", value, value < 9.95 ? 1 : 0, kSuffixes[suffix]);
}

std::string micros_text(uint64_t micros) {
  if (micros == kUnknown64 || micros == kUnknown32) return kUnknownText;
  if (micros < 1000) return fmt::format("{}us", micros);
  if (micros < 1'000'000) return fmt::format("{:.1f}ms", static_cast<double>(micros) / 1e3);
  return fmt::format("{:.1f}s", static_cast<double>(micros) / 1e6);
}

std::string tokens_text(int64_t tokens_ns) {
  const double ms = static_cast<double>(tokens_ns) / 1e6;
  return std::abs(ms) < 1000 ? fmt::format("{:.1f}ms", ms) : fmt::format("{:.1f}s", ms / 1e3);
}

std::string count_text(uint32_t count) {
  return count == kUnknown32 ? kUnknownText : fmt::format("{}", count);
}

std::string duration_text(Nanos duration) {
  using namespace std::chrono;
  const auto s = duration_cast<seconds>(duration).count();
  if (s < 1) return fmt::format("{} ms", duration_cast<milliseconds>(duration).count());
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {} h", s / 86400, s / 3600 % 24);
}

std::string cap_text(uint64_t quota_us, uint64_t period_us) {
  if (quota_us == kUnknown64 || period_us == 0) return "max";
  if (period_us != 100'000) return fmt::format("{}/{}us", quota_us, period_us);
  return fmt::format("{}%", static_cast<double>(quota_us) / 1000);
}

std::string printable(std::string_view text, bool is_utf8) {
  text = text.substr(0, text.find('\0'));
  std::string out;
  while (!text.empty()) {
    const Character next = first_character(text);
    const bool is_shown = next.columns > 0 && (is_utf8 || next.bytes == 1);
    out += is_shown ? text.substr(0, next.bytes) : "?";
    text.remove_prefix(next.bytes);
  }
  return out;
}

std::string printable(std::string_view text) { return printable(text, is_output_utf8()); }

std::string tenant_text(const TenantRecord& tenant) {
  return printable({tenant.name, sizeof(tenant.name)});
}

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string markup_text(std::string_view text) {
  std::string out;
  for (const char c : printable(text, true)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (; !text.empty(); text.remove_prefix(first_character(text).bytes))
    width += first_character(text).columns;
  return width;
}

std::string clipped(std::string_view text, size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return "";
  size_t end = 0;
  for (size_t columns = 0; end < text.size();) {
    const Character next = first_character(text.substr(end));
    columns += next.columns;
    if (columns > width - 1) break;
    end += next.bytes;
  }
  return std::string(text.substr(0, end)) + "~";
}

std::string padded(std::string_view text, size_t width, Align align) {
  std::string out = clipped(text, width);
  const size_t used = display_width(out);
  return align == Align::kLeft ? out + std::string(width - used, ' ')
                               : std::string(width - used, ' ') + out;
}

}  // namespace gpushare
