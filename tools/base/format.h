// SPDX-License-Identifier: Apache-2.0
// Formats values for a person. Pure, but for printable(). An unknown value is shown as "?" and
// never as 0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shmctl/base/clock.h"

namespace gpushare {

struct TenantRecord;

inline constexpr const char* kUnknownText = "?";

std::string percent_text(uint32_t permille);  // "29.8%"
std::string bytes_text(uint64_t bytes);       // "512M", "4.0G": powers of 1024, at most 5 wide
std::string micros_text(uint64_t micros);     // "1us", "850us", "2.0ms", "1.5s"
std::string tokens_text(int64_t tokens_ns);   // "-12.0ms"
std::string count_text(uint32_t count);       // "1234"
std::string duration_text(Nanos duration);  // "350 ms", "12 s", "3 min 5 s", "2 h 3 min", "4 d 1 h"
std::string cap_text(uint64_t quota_us, uint64_t period_us);  // "max", "30%", "5000/20000us"

// Makes `text` fit for a terminal: each character that cannot be shown by itself, such as those
// that control a terminal, becomes one '?', and so does each that is not ASCII unless `is_utf8`. It
// ends at a NUL. Names of programs are chosen by their owners, who may be hostile.
std::string printable(std::string_view text, bool is_utf8);
// The same, as this program's output is shown (is_output_utf8()).
std::string printable(std::string_view text);
std::string tenant_text(const TenantRecord& tenant);  // its name
std::string lowered(std::string_view text);           // ASCII letters alone
// For HTML and SVG, in text and in attributes. Bytes that are no UTF-8, and control characters,
// become '?'.
std::string markup_text(std::string_view text);

// Returns how many columns `text` takes, which is UTF-8.
size_t display_width(std::string_view text);
// Cuts `text` to at most `width` columns, and marks the cut by a final '~'.
std::string clipped(std::string_view text, size_t width);
enum class Align { kLeft, kRight };
// Cuts or fills `text` to exactly `width` columns.
std::string padded(std::string_view text, size_t width, Align align);

}  // namespace gpushare
