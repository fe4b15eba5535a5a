// SPDX-License-Identifier: Apache-2.0
// RmClient: the agent's own client of the driver's resource manager (RM). Making one takes 0.8 ms,
// no CUDA and no GPU memory (driver-facts section 2). All of nvrm/ uses it. Once it is open,
// several threads may make controls and objects through it at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "intercept/nvrm/abi.h"
#include "intercept/nvrm/driver.h"

namespace gpushare::nvrm {

// The error for a status (GS_NV_*) with which RM answered a call. Handles that are gone give
// no_such_process; the detail has the number.
std::unexpected<Error> rm_error(uint32_t status, const char* step, const std::string& detail = {});

// Whether it is the process or the object that has ended, not the call that went wrong.
inline bool is_gone(const Error& error) { return error.code == std::errc::no_such_process; }

// Makes one RM call whose argument `call` has a member `status`, on any descriptor: an own one, or
// the copy of another process's. `step` says in an error what was attempted.
template <class Call>
Result<> rm_call(Driver& driver, int fd, unsigned nr, Call& call, const char* step) {
  if (int error = driver.ioctl(fd, nr, &call, sizeof(call)))
    return std::unexpected(Error{std::error_code(error, std::generic_category()), step, {}});
  if (call.status != GS_NV_OK) return rm_error(call.status, step);
  return {};
}

// Makes one RM_CONTROL of `object`.
Result<> rm_control(Driver& driver, int fd, uint32_t client, uint32_t object, uint32_t command,
                    void* params, uint32_t bytes, const char* step);
template <class Params>
Result<> rm_control(Driver& driver, int fd, uint32_t client, uint32_t object, uint32_t command,
                    Params& params, const char* step) {
  return rm_control(driver, fd, client, object, command, &params, sizeof(params), step);
}

// Makes a new client of RM on this descriptor of /dev/nvidiactl and returns its handle. The client
// ends with the descriptor.
Result<uint32_t> make_client(Driver& driver, int fd);

struct RmGpuDevice {
  GpuInfo info;
  uint32_t gpu_id = 0;  // RM's id of the GPU
  uint32_t device = 0;  // the client's handles of its device objects
  uint32_t subdevice = 0;
};

class RmClient {
 public:
  // Opens every GPU of the machine that answers. Errors: no_such_device (no driver is loaded, or it
  // has no GPU), permission_denied.
  static Result<RmClient> open(Driver& driver);

  const std::vector<RmGpuDevice>& gpus() const { return gpus_; }
  const std::string& driver_version() const { return version_; }
  // Why not all GPUs are in gpus(); empty: they are.
  const std::string& missing() const { return missing_; }
  Driver& driver() const { return *driver_; }
  int fd() const { return control_.get(); }
  uint32_t client() const { return client_; }

  // Makes a control of the subdevice of a GPU, which is named by its index in gpus().
  template <class Params>
  Result<> subdevice_control(uint32_t gpu, uint32_t command, Params& params,
                             const char* step) const {
    return rm_control(*driver_, control_.get(), client_, gpus_[gpu].subdevice, command, params,
                      step);
  }
  // Makes an object below `parent` and returns its handle.
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
  std::string version_, missing_;
  std::vector<RmGpuDevice> gpus_;
};

}  // namespace gpushare::nvrm
