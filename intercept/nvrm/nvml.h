// SPDX-License-Identifier: Apache-2.0
// Nvml: asks NVML (libnvidia-ml.so.1, which is loaded when it is there) how busy each process kept
// the SMs since it was asked before. Everything else comes from the resource manager itself.
// Several threads may ask for different GPUs at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "intercept/gpu.h"

namespace gpushare::nvrm {

class Nvml {
 public:
  // nullptr when this machine has no NVML, or it does not start.
  static std::unique_ptr<Nvml> load();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  // What is new since the last call for the GPU with this UUID, as Gpu::utilisation() says. Whole
  // percent. nullopt when it does not tell: a GPU without this counter, or MIG.
  std::optional<UtilisationSample> utilisation(const std::string& uuid);

 private:
  struct Api;
  struct Device {
    void* handle = nullptr;            // nullptr: NVML does not know it
    unsigned long long newest_us = 0;  // the time stamp until which all has been told
    unsigned rows = 16;                // that were enough so far
  };
  explicit Nvml(std::unique_ptr<Api> api);
  Device device_of(const std::string& uuid);
  void note(const std::string& uuid, const Device& device);
  std::unique_ptr<Api> api_;
  std::mutex mutex_;                       // of what follows
  std::map<std::string, Device> devices_;  // by UUID
};

}  // namespace gpushare::nvrm
