// SPDX-License-Identifier: Apache-2.0
#include "sched/module/kernel_module.h"

#include <thread>

#include "intercept/kmod/calls.h"

namespace gpushare {
namespace {

constexpr Nanos kTryAgain = std::chrono::milliseconds(20);

Result<> take_part(kmod::Device& device) {
  if (auto asked = kmod::query(device); !asked) return std::unexpected(asked.error());
  return kmod::register_agent(device);
}

}  // namespace

Result<std::unique_ptr<kmod::Device>> open_module(const std::string& path) {
  auto device = kmod::open_device(path);
  if (!device) return device;
  if (auto taken = take_part(**device); !taken) return std::unexpected(taken.error());
  return device;
}

Result<std::unique_ptr<kmod::Device>> open_module(const std::string& path, Nanos patience) {
  const Time end = MonotonicClock().now() + patience;
  while (true) {
    auto device = open_module(path);
    if (device || device.error().code != std::errc::device_or_resource_busy ||
        MonotonicClock().now() >= end)
      return device;
    std::this_thread::sleep_for(kTryAgain);
  }
}

KernelModule KernelModule::find(const ModulePaths& paths, int inherited_fd) {
  KernelModule module;
  if (!paths.sysfs.empty()) {
    auto tree = std::make_unique<SysfsTree>(paths.sysfs);
    if (tree->is_there()) module.tree_ = std::move(tree);
  }
  if (paths.device.empty()) return module;
  Result<> ready;
  auto device = inherited_fd >= 0 ? kmod::adopt_device(inherited_fd) : open_module(paths.device);
  if (!device) {
    ready = std::unexpected(device.error());
  } else {
    module.device_ = std::move(*device);
    if (inherited_fd >= 0) ready = take_part(*module.device_);
    auto ring = ready ? KmodObserver::start(*module.device_) : std::unexpected(ready.error());
    if (ring)
      module.ring_ = std::move(*ring);
    else
      ready = std::unexpected(ring.error());
  }
  if (ready) return module;
  module.device_.reset();
  const bool is_loaded =
      module.tree_ != nullptr || ready.error().code != std::errc::no_such_file_or_directory;
  if (is_loaded) module.no_ring_reason_ = ready.error().message();
  return module;
}

bool KernelModule::sees_the_driver() const {
  if (ring_ == nullptr || tree_ == nullptr) return false;
  const auto driver = tree_->text("driver");
  return driver && driver->starts_with("hooked");
}

std::string KernelModule::problem() const {
  if (!no_ring_reason_.empty()) return no_ring_reason_;
  if (ring_ == nullptr) return "";
  if (tree_ == nullptr) return "its files in sysfs are not there";
  if (sees_the_driver()) return "";
  const auto driver = tree_->text("driver");
  return driver ? "it is " + *driver : driver.error().message();
}

}  // namespace gpushare
