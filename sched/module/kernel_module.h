// SPDX-License-Identifier: Apache-2.0
// KernelModule: what a process of gpushared has of the kernel module: its sysfs tree, and the
// device with its event ring. Either may be missing, and the agent then does without. One thread.
//
// The module lets one registered process and its children control the GPUs, and all that was done
// through the device ends with its last descriptor. So the supervisor opens the device, keeps it
// and gives it to each agent, and a process that is about to act registers itself first: the
// supervisor when it starts or finds the module, and before it thaws what a dead agent froze; each
// agent when it starts; and `gpushared --recover`, which opens the device for itself.
#pragma once

#include <memory>
#include <string>

#include "intercept/kmod/device.h"
#include "intercept/kmod/observer.h"
#include "shmctl/base/clock.h"
#include "shmctl/settings/sysfs_tree.h"

namespace gpushare {

struct ModulePaths {
  std::string device;  // empty: the device is not used
  std::string sysfs;   // the folder of its attributes; empty: sysfs is not used
};

// Opens the device and registers the calling process. Errors: those of kmod::open_device(),
// kmod::query() and kmod::register_agent().
Result<std::unique_ptr<kmod::Device>> open_module(const std::string& path);
// The same, but waits for at most `patience` while another process still holds it
// (device_or_resource_busy).
Result<std::unique_ptr<kmod::Device>> open_module(const std::string& path, Nanos patience);

class KernelModule {
 public:
  // Never fails: problem() says what is missing. `inherited_fd`: the device's descriptor from the
  // supervisor; -1: the device is opened here.
  static KernelModule find(const ModulePaths& paths, int inherited_fd);

  SysfsTree* tree() { return tree_.get(); }         // nullptr: the module is not loaded
  KmodObserver* ring() { return ring_.get(); }      // nullptr: problem() says why
  kmod::Device* device() { return device_.get(); }  // nullptr: if and only if there is no ring
  // Returns true if the module is hooked to the driver and this process reads its ring, which then
  // tells all that the eBPF probe would.
  bool sees_the_driver() const;
  // Why there is no ring, or why it tells nothing; empty: it tells, or the module is not loaded.
  std::string problem() const;

 private:
  std::unique_ptr<SysfsTree> tree_;
  std::unique_ptr<kmod::Device> device_;
  std::unique_ptr<KmodObserver> ring_;  // after device_, which it uses
  std::string no_ring_reason_;
};

}  // namespace gpushare
