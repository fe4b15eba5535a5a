// SPDX-License-Identifier: Apache-2.0
// How tests start what was built: a Child that must start, and what it did when it has ended. A
// failure is an exception, which ends the test with the program's last lines.
#pragma once

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "shmctl/program/child.h"

namespace gpushare::test {

// The folder of what was built: this program lies in bin/tests/ of it.
inline std::string build_folder() {
  return std::filesystem::path(own_folder()).parent_path().parent_path();
}

// What a test cannot do without.
template <class T>
T needed(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

inline std::unique_ptr<Child> started(Launch launch) {
  return std::make_unique<Child>(needed(Child::start(std::move(launch))));
}
// `environment` is all that it gets.
inline std::unique_ptr<Child> started(std::vector<std::string> command,
                                      std::vector<std::string> environment) {
  return started({.command = std::move(command),
                  .environment = std::move(environment),
                  .is_environment_whole = true});
}

// Waits five minutes at most. The status is an exit code, or 128 + a signal.
inline int status_of(Child& child) { return needed(child.finish(std::chrono::minutes(5))); }

// Sends it a signal, and returns how it ended.
inline int ended_by(Child& child, int signal) {
  child.signal(signal);
  return status_of(child);
}

struct Outcome {
  int status = -1;
  std::string out, err;
};
inline Outcome outcome_of(Child& child) {
  const int status = status_of(child);
  return {status, child.output(), child.errors()};
}

}  // namespace gpushare::test
