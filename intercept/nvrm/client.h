// SPDX-License-Identifier: Apache-2.0
// RmClient: our own client of the driver's resource manager, made without CUDA and without GPU
// memory (0.8 ms; driver-facts section 2). All of nvrm/ speaks through it. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "intercept/nvrm/abi.h"
#include "intercept/nvrm/driver.h"

namespace gpushare::nvrm {

// RM's answer to a call that the kernel accepted. `status` is one of GS_NV_*.
std::unexpected<Error> rm_error(uint32_t status, const char* step, std::string detail = {});

// One RM_CONTROL / RM_ALLOC on any descriptor (ours, or another process's that we hold a copy of).
Result<> rm_control(Driver& driver, int fd, uint32_t client, uint32_t object, uint32_t command,
                    void* params, uint32_t bytes, const char* step);
template <class Params>
Result<> rm_control(Driver& driver, int fd, uint32_t client, uint32_t object, uint32_t command,
                    Params& params, const char* step) {
  return rm_control(driver, fd, client, object, command, &params, sizeof(params), step);
}

// A new client of RM on this descriptor of /dev/nvidiactl; it ends with the descriptor.
Result<uint32_t> make_client(Driver& driver, int fd);

struct RmGpuDevice {
  GpuInfo info;
  uint32_t gpu_id = 0;
  uint32_t device = 0;  // our handles
  uint32_t subdevice = 0;
};

class RmClient {
 public:
  // Opens every GPU of the machine. Errors: no_such_device (driver not loaded), permission_denied.
  static Result<RmClient> open(Driver& driver);

  const std::vector<RmGpuDevice>& gpus() const { return gpus_; }
  const std::string& driver_version() const { return version_; }
  Driver& driver() const { return *driver_; }
  int fd() const { return control_.get(); }
  uint32_t client() const { return client_; }

  // A control on one of our subdevices.
  template <class Params>
  Result<> subdevice_control(uint32_t gpu, uint32_t command, Params& params,
                             const char* step) const {
    return rm_control(*driver_, control_.get(), client_, gpus_[gpu].subdevice, command, params,
                      step);
  }
  // Makes an object under `parent`; returns its handle.
  Result<uint32_t> alloc(uint32_t parent, uint32_t class_id, void* params, uint32_t bytes,
                         const char* step);

 private:
  Result<> read_version();
  Result<> find_gpus();
  Result<> add_gpu(uint32_t gpu_id);
  void describe(RmGpuDevice& gpu) const;

  Driver* driver_ = nullptr;
  Fd control_;
  std::vector<Fd> devices_;
  uint32_t client_ = 0;
  uint32_t next_handle_ = 0xCAFE0001;
  std::string version_;
  std::vector<RmGpuDevice> gpus_;
};

}  // namespace gpushare::nvrm
