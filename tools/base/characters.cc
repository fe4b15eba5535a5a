// SPDX-License-Identifier: Apache-2.0
#include "tools/base/characters.h"

#include <strings.h>

#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <initializer_list>
#include <string>

namespace gpushare {
namespace {

// The library knows widths by a locale only, and each thread has its own.
class InUtf8 {
 public:
  InUtf8() : former_(::uselocale(utf8())) {}
  ~InUtf8() { ::uselocale(former_); }
  InUtf8(const InUtf8&) = delete;
  InUtf8& operator=(const InUtf8&) = delete;

 private:
  // Never freed. 0, where the machine has no such locale: then all that is not ASCII has no width.
  static locale_t utf8() {
    static const locale_t locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t{});
    return locale;
  }
  const locale_t former_;
};

}  // namespace

Character first_character(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text.front());
  if (byte < 0x80) return {1, byte >= ' ' && byte != 0x7F ? 1U : 0U};
  const InUtf8 scope;
  constexpr auto kCutOff = static_cast<size_t>(-2);
  std::mbstate_t state{};
  wchar_t wide = 0;
  const size_t bytes = std::mbrtowc(&wide, text.data(), text.size(), &state);
  if (bytes == kCutOff) return {text.size(), 0};
  if (bytes > text.size()) return {1, 0};
  const int columns = ::wcwidth(wide);
  return {bytes, columns > 0 ? static_cast<size_t>(columns) : 0};
}

bool is_output_utf8() {
  static const bool is_utf8 = [] {
    for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
      const char* const value = std::getenv(variable);
      if (value == nullptr || *value == '\0') continue;
      const std::string_view locale(value);
      const std::string_view set = locale.substr(locale.find('.') + 1);
      const std::string name(set.substr(0, set.find('@')));
      return ::strcasecmp(name.c_str(), "utf-8") == 0 || ::strcasecmp(name.c_str(), "utf8") == 0;
    }
    return false;
  }();
  return is_utf8;
}

}  // namespace gpushare
