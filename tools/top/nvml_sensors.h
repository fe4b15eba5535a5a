// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's management library says of the GPUs.
#pragma once

#include <memory>

#include "tools/top/model/sensors.h"

namespace gpushare {

// A thread of its own asks NVML, because a GPU in trouble can make its functions hang; read()
// returns what was last found. That thread is left behind when it hangs at the end.
class NvmlSensors : public Sensors {
 public:
  NvmlSensors();
  ~NvmlSensors() override;
  SensorsLook read(const std::vector<std::string>& uuids) override;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace gpushare
