// SPDX-License-Identifier: Apache-2.0
// The probe and its observer on real system calls: child processes make RM ioctls on a FUSE file
// that answers them (tests/intercept/bpf/fake_driver.h). Needs root and a kernel with BTF; tests
// skip where they are missing.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "intercept/bpf/observer.h"
#include "tests/intercept/bpf/fake_driver.h"

namespace gpushare {

// A child process that runs `body` when told to go and then exits. Killed if the test ends first.
class HeldChild {
 public:
  explicit HeldChild(const std::function<void()>& body);
  HeldChild(const HeldChild&) = delete;
  ~HeldChild();

  void go() { go_.reset(); }
  // Runs it to its end; its exit status.
  int finish();
  ProcessId process() const { return process_; }

 private:
  pid_t pid_ = 0;
  ProcessId process_;
  Fd go_;
};

class BpfObserverTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override;

  // Again, with other options.
  void start(const ProbeOptions& options);
  void drain();
  // Collects events until `process` has closed. False if that does not happen in 20 s.
  bool drain_until_closed(ProcessId process);
  // One line per event of this process, for comparison with what it did.
  std::vector<std::string> from(ProcessId process) const;

  template <class T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const DriverEvent& event : events_)
      if (const T* what = std::get_if<T>(&event.what)) found.push_back(*what);
    return found;
  }

  static std::optional<FakeDriver> driver_;
  static std::string missing_;
  std::unique_ptr<BpfObserver> observer_;
  std::vector<DriverEvent> events_;
};

}  // namespace gpushare
