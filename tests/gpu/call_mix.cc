// SPDX-License-Identifier: Apache-2.0
// libcall_mix.so, which call_mix.sh preloads into programs, appends a line to the file
// GPUSHARE_CALL_MIX for every ioctl that the program makes of the driver: its number, the word that
// tells what it is about (a class, or a control that the kernel module looks at; all other controls
// count as one), and whether the module looks at it (kmod/rm/interest.h).
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kmod/rm/interest.h"

namespace {

void note(unsigned number, unsigned size, const char* argument) {
  static const char* const path = std::getenv("GPUSHARE_CALL_MIX");
  static const int fd = path ? ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
  __u32 offset = 0, word = 0;
  const gs_interest interest = gs_interest_in(number, size, &offset);
  bool is_of_interest = interest == GS_INTEREST_SURE;
  if (interest == GS_INTEREST_BY_WORD) {
    std::memcpy(&word, argument + offset, sizeof word);
    is_of_interest = gs_word_is_of_interest(number, word);
  }
  char line[64];
  if (number == RM_ESC_CONTROL && !is_of_interest) word = 0;
  const int length =
      std::snprintf(line, sizeof line, "%#x %#x %s\n", number, word, is_of_interest ? "yes" : "no");
  (void)!::write(fd, line, static_cast<size_t>(length));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  auto* const argument = va_arg(list, const char*);
  va_end(list);
  const unsigned number = request & 0xFF, size = request >> 16 & 0x3FFF;
  const auto* const xfer = reinterpret_cast<const rm_xfer*>(argument);
  if ((request >> 8 & 0xFF) == 'F' && argument != nullptr) {
    if (number == RM_ESC_XFER)
      note(xfer->cmd, xfer->size, reinterpret_cast<const char*>(xfer->ptr));
    else
      note(number, size, argument);
  }
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}
