// SPDX-License-Identifier: Apache-2.0
// Nvml: asks NVML (libnvidia-ml.so.1, which is loaded when it is there) how busy each process kept
// the SMs over the last sample periods. Everything else comes from the resource manager itself.
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

  // The newest sample of each process on the GPU with this UUID, none older than two seconds; `gpu`
  // is copied into the result. The driver samples whole percent about once a second (every 1/6 s on
  // an idle GPU). nullopt when it does not tell: a GPU without this counter, or MIG.
  std::optional<std::vector<Utilisation>> utilisation(const std::string& uuid, uint32_t gpu);

 private:
  struct Api;
  explicit Nvml(std::unique_ptr<Api> api);
  void* device_of(const std::string& uuid);  // nullptr: NVML does not know it
  std::unique_ptr<Api> api_;
  std::mutex mutex_;                      // of what follows
  std::map<std::string, void*> devices_;  // by UUID
};

}  // namespace gpushare::nvrm
