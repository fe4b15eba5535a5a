// SPDX-License-Identifier: Apache-2.0
// RmClient: the agent's own clients of the driver's resource manager (RM): one that asks what is
// there, and one for each GPU. Making one takes 0.8 ms, no CUDA and no GPU memory (driver-facts
// section 2). All of nvrm/ uses it. Several threads may make controls and objects of GPUs that are
// open at once, while others are being opened.
#pragma once

#include <array>
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

// A GPU, which has a client of its own: RM serves one call of a client at a time, so that a GPU
// that hangs would hold up the others.
struct RmGpuDevice {
  GpuInfo info;         // until it is open only its index and its PCI address are known
  uint32_t gpu_id = 0;  // RM's id of the GPU
  // From here on valid when it is open.
  Fd control;
  std::vector<Fd> files;  // of its /dev/nvidiaN, which stays open
  uint32_t client = 0;
  uint32_t device = 0;  // the client's handles of its device objects
  uint32_t subdevice = 0;
};

class RmClient {
 public:
  // Learns which GPUs the machine has, and opens none. Errors: no_such_device (no driver is loaded,
  // or it has no GPU), permission_denied.
  static Result<RmClient> list(Driver& driver);
  // Opens every GPU that answers, too. Error: those of list(), or why none could be opened.
  static Result<RmClient> open(Driver& driver);

  // Opens one, which may take seconds, or hang. Not for the same GPU on two threads at once. Error:
  // no_such_device, permission_denied, or what RM answered.
  Result<> open(uint32_t gpu);
  bool is_open(uint32_t gpu) const {  // pairs with the release in open()
    return __atomic_load_n(&is_open_[gpu], __ATOMIC_ACQUIRE);
  }

  // All of the machine, in the driver's order, which is the same for everybody.
  const std::vector<RmGpuDevice>& gpus() const { return gpus_; }
  const std::string& driver_version() const { return version_; }
  // Why open() has not opened all GPUs; empty: it has.
  const std::string& missing() const { return missing_; }
  Driver& driver() const { return *driver_; }
  int fd() const { return control_.get(); }
  uint32_t client() const { return client_; }
  // Whether the client is this one, or that of a GPU. Any thread may call.
  bool is_own(uint32_t client) const;

  // Makes a control of the subdevice of a GPU, which is named by its index in gpus(), and is open.
  template <class Params>
  Result<> subdevice_control(uint32_t gpu, uint32_t command, Params& params,
                             const char* step) const {
    const RmGpuDevice& asked = gpus_[gpu];
    return rm_control(*driver_, asked.control.get(), asked.client, asked.subdevice, command, params,
                      step);
  }
  // Makes an object below `parent` in the client of a GPU and returns its handle.
  Result<uint32_t> alloc(uint32_t gpu, uint32_t parent, uint32_t class_id, void* params,
                         uint32_t bytes, const char* step);

 private:
  Result<> read_version();
  Result<> find_gpus();
  Result<> open_files(RmGpuDevice& gpu);
  Result<> make_devices(RmGpuDevice& gpu);
  void describe(RmGpuDevice& gpu) const;

  Driver* driver_ = nullptr;
  Fd control_;
  uint32_t client_ = 0;
  uint32_t next_handle_ = 0xCAFE0001;
  std::string version_, missing_;
  std::vector<RmGpuDevice> gpus_;
  std::array<bool, GS_MAX_GPUS> is_open_{};  // by GPU; read and written atomically
};

}  // namespace gpushare::nvrm
