// SPDX-License-Identifier: Apache-2.0
// libcontrol_log.so, which start_controls.sh preloads into programs, writes a line of JSON to
// GPUSHARE_CONTROL_LOG for every scheduling control that the program makes of the driver, with what
// the kernel module's rules (kmod/rm/refusals.h) say of it. So the rules can be tried on real
// programs without the module. A control is one of scheduling if it is in the module's table, or
// concerns channels, groups or an engine's runlist.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "kmod/rm/refusals.h"

namespace {

constexpr unsigned kDriversType = 'F';

struct Object {
  uint32_t client, handle;
  auto operator<=>(const Object&) const = default;
};

class Log {
 public:
  static Log& instance() {
    static Log* const log = new Log;  // it is never destroyed: programs make calls as they exit
    return *log;
  }

  void allocated(uint32_t client, uint32_t handle, uint32_t class_id) {
    const bool is_group = class_id == RM_CLASS_GROUP;
    const bool is_channel = (class_id & 0xFF) == 0x6F;
    if (!is_group && !is_channel) return;
    const std::lock_guard lock(mutex_);
    own_.insert({client, handle});
  }

  // The module remembers of what object a duplicate was made. Here all duplicates count as the
  // program's own, which changes nothing for objects other than groups and channels.
  void duplicated(uint32_t client, uint32_t handle) {
    const std::lock_guard lock(mutex_);
    own_.insert({client, handle});
  }

  bool judge(const rm_nvos54& call, uint64_t value) {
    const std::lock_guard lock(mutex_);
    const gs_rule rule = gs_rule_of(call.cmd);
    const Object object{call.h_client, call.h_object};
    const gs_target target{.is_own = own_.contains(object),
                           .is_done = done_.contains({object, call.cmd})};
    const bool is_allowed = gs_control_is_allowed(rule, &target, value);
    if (is_allowed) done_.insert({object, call.cmd});
    return is_allowed;
  }

  void write_line(const rm_nvos54& call, uint64_t value, bool is_allowed) const {
    if (fd_ < 0) return;
    char command[32] = "";
    if (const int comm = ::open("/proc/self/comm", O_RDONLY | O_CLOEXEC); comm >= 0) {
      const ssize_t got = ::read(comm, command, sizeof command - 1);
      if (got > 0) command[got - 1] = '\0';
      ::close(comm);
    }
    char line[320];
    const int length = std::snprintf(
        line, sizeof line,
        "{\"pid\": %d, \"command\": \"%s\", \"control\": \"%#x\", \"rule\": \"%s\", "
        "\"client\": \"%#x\", \"object\": \"%#x\", \"value\": \"%#llx\", \"status\": \"%#x\", "
        "\"is_allowed\": %s}\n",
        ::getpid(), command, call.cmd, rule_name(gs_rule_of(call.cmd)), call.h_client,
        call.h_object, static_cast<unsigned long long>(value), call.status,
        is_allowed ? "true" : "false");
    if (length > 0) (void)!::write(fd_, line, static_cast<size_t>(length));
  }

 private:
  Log() {
    if (const char* path = std::getenv("GPUSHARE_CONTROL_LOG"))
      fd_ = ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  }

  static const char* rule_name(gs_rule rule) {
    switch (rule) {
      case GS_RULE_NONE:
        return "none";
      case GS_RULE_NEVER:
        return "never";
      case GS_RULE_FIRST_OWN:
        return "first own";
      case GS_RULE_FIRST_SLICE:
        return "first slice";
      case GS_RULE_OWN:
        return "own";
      case GS_RULE_PREEMPTION:
        return "preemption";
      case GS_RULE_CARRIES:
        return "carries";
    }
    return "?";
  }

  std::mutex mutex_;
  std::set<Object> own_;
  std::set<std::pair<Object, uint32_t>> done_;
  int fd_ = -1;
};

bool is_scheduling(uint32_t control) {
  const gs_rule rule = gs_rule_of(control);
  if (rule != GS_RULE_NONE && rule != GS_RULE_CARRIES) return true;
  const uint32_t class_id = control >> 16, category = control >> 8 & 0xFF;
  const bool is_of_channels = class_id == RM_CLASS_GROUP || (class_id & 0xFF) == 0x6F;
  const bool is_of_fifo =
      (class_id == 0x2080 && category == 0x11) || (class_id == 0x0080 && category == 0x17);
  return is_of_channels || is_of_fifo;
}

void note(unsigned number, const void* argument) {
  if (number == RM_ESC_ALLOC) {  // its short and its long form begin alike
    rm_nvos21 call{};
    std::memcpy(&call, argument, sizeof call);
    Log::instance().allocated(call.h_root, call.h_new, call.h_class);
  } else if (number == RM_ESC_DUP_OBJECT) {
    rm_nvos55 call{};
    std::memcpy(&call, argument, sizeof call);
    Log::instance().duplicated(call.h_client, call.h_object);
  } else if (number == RM_ESC_CONTROL) {
    rm_nvos54 call{};
    std::memcpy(&call, argument, sizeof call);
    if (!is_scheduling(call.cmd)) return;
    uint64_t value = 0;
    if (call.p_params != 0 && (call.flags & RM_CONTROL_FLAGS_SERIALIZED) == 0)
      std::memcpy(&value, reinterpret_cast<const void*>(call.p_params),
                  call.params_size < sizeof value ? call.params_size : sizeof value);
    Log::instance().write_line(call, value, Log::instance().judge(call, value));
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  const long result = ::syscall(SYS_ioctl, fd, request, argument);
  if ((request >> 8 & 0xFF) == kDriversType && result == 0 && argument != nullptr) {
    const int kept = errno;
    const unsigned number = request & 0xFF;
    if (number == RM_ESC_XFER) {
      const auto* xfer = static_cast<const rm_xfer*>(argument);
      note(xfer->cmd, reinterpret_cast<const void*>(xfer->ptr));
    } else {
      note(number, argument);
    }
    errno = kept;
  }
  return static_cast<int>(result);
}
