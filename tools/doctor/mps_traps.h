// SPDX-License-Identifier: Apache-2.0
// Traps of NVIDIA's MPS that its users fall into without a word from it: a program that looks for
// the control daemon where none is runs without MPS, and its limits hold nothing; a server that has
// all the clients it takes has CUDA tell the next one that the device is busy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "shmctl/plane/snapshot.h"
#include "tools/base/report.h"
#include "tools/doctor/machine_files.h"

namespace gpushare {

// What one server takes (docs/driver-facts.md).
constexpr uint32_t kMostMpsClients = 48;

// Looks at the environments of the snapshot's processes, as far as this user may read them. Returns
// the first trap that it finds, as a warning.
std::optional<Finding> find_mps_trap(const MachineFiles& files, const PlaneSnapshot& snapshot);

}  // namespace gpushare
