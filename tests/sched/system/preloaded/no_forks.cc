// SPDX-License-Identifier: Apache-2.0
// Preloaded into gpushared by deaths_system_test.cc: no process can be made while the file that
// GPUSHARE_TEST_NO_FORKS names exists, as on a machine that has room for no more.
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) pid_t fork() {
  const char* const file = std::getenv("GPUSHARE_TEST_NO_FORKS");
  auto* const real = reinterpret_cast<pid_t (*)()>(::dlsym(RTLD_NEXT, "fork"));
  if (real == nullptr || (file != nullptr && ::access(file, F_OK) == 0)) {
    errno = EAGAIN;
    return -1;
  }
  return real();
}
