// SPDX-License-Identifier: Apache-2.0
// KernelModule: what a process of gpushared has of the kernel module: its sysfs tree, and the
// device with its event ring. Either may be missing; the agent then does without. One thread.
//
// Who holds the device: everything that is done through it ends with its last descriptor, so the
// supervisor opens it, keeps it for its life, and hands it to each agent it starts. Who acts
// registers first, because the module lets one process and its children control the GPUs:
//  - the supervisor starts: it opens the device and registers itself; when the module comes later,
//    then, and it starts the agent again;
//  - the agent starts: it registers itself;
//  - the agent died: the supervisor registers itself, and thaws;
//  - the supervisor died: the agent is still the registered one, and stops cleanly;
//  - both died: the last descriptor is gone; --recover opens it and registers itself.
#pragma once

#include <memory>
#include <string>

#include "intercept/kmod/device.h"
#include "intercept/kmod/observer.h"
#include "shmctl/base/clock.h"
#include "shmctl/settings/sysfs_tree.h"

namespace gpushare {

struct ModulePaths {
  std::string device;  // empty: the module is not used
  std::string sysfs;   // the same
};

// The device, with the calling process registered. Errors of kmod::open_device() and query().
Result<std::unique_ptr<kmod::Device>> open_module(const std::string& path);
// Waits for whoever is just ending to let go of it.
Result<std::unique_ptr<kmod::Device>> open_module(const std::string& path, Nanos patience);

class KernelModule {
 public:
  // Never fails: what is missing is said by problem(). `inherited_fd`: of the device, from the
  // supervisor; -1: the device is opened here.
  static KernelModule find(const ModulePaths& paths, int inherited_fd);

  SysfsTree* tree() { return tree_.get(); }         // nullptr: the module is not loaded
  KmodObserver* ring() { return ring_.get(); }      // nullptr: for problem()
  kmod::Device* device() { return device_.get(); }  // as the ring
  // Is it loaded, hooked to the driver, and ours? Then the ring tells all that the probe would.
  bool sees_the_driver() const;
  // Why there is no ring, or why it does not tell; empty: it does, or there is no module at all.
  std::string problem() const;

 private:
  std::unique_ptr<SysfsTree> tree_;
  std::unique_ptr<kmod::Device> device_;
  std::unique_ptr<KmodObserver> ring_;  // after device_, which it uses
  std::string no_ring_reason_;
};

}  // namespace gpushare
