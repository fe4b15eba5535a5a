// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests of the probe and its observer on real system calls: child processes make
// RM ioctls on a FUSE file that answers them (fake_driver.h). It needs root and a kernel with BTF;
// without them the tests are skipped.
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

constexpr uint32_t kHopperChannel = 0xC86F;

// A child process that runs `body` when it is told to and then exits. It is killed if the test ends
// first.
class HeldChild {
 public:
  explicit HeldChild(const std::function<void()>& body);
  HeldChild(const HeldChild&) = delete;
  ~HeldChild();

  void go() { go_.reset(); }
  // Lets it run to its end and returns its exit status.
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

  // Starts the observer anew with other options.
  void start(const ProbeOptions& options);
  // Until all that was seen has been examined.
  void drain();
  // What is there.
  void drain_now();
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
  nvrm::Driver* rm_ = nullptr;  // what start() gives the observer to examine claims with
  std::unique_ptr<BpfObserver> observer_;
  std::vector<DriverEvent> events_;
};

}  // namespace gpushare
