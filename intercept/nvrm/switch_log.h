// SPDX-License-Identifier: Apache-2.0
// SwitchLog: reads one GPU's log of context switches (driver-facts section 5). The driver writes a
// record into a ring, which it maps read-only into this process, whenever a context of any user
// comes to the compute engine or leaves it. One thread.
//
// The ring keeps the newest records. Every record has a 16-bit number that counts those that the
// hardware dropped, too, so the records that were overwritten before they were read are known
// exactly, up to 65,535 between two reads; of more, the remainder. Where the last record that was
// read is not in its place any more, all that the ring holds is new. After a gap within what is
// read only what follows it is given.
#pragma once

#include <optional>
#include <vector>

#include "intercept/gpu.h"
#include "intercept/nvrm/client.h"
#include "intercept/nvrm/gpu_clock.h"

namespace gpushare::nvrm {

class SwitchLog {
 public:
  // Records in the ring, which takes 512 KiB. Two contexts that switch every 2 ms write 1,000
  // records a second (measured on an H200).
  static constexpr uint32_t kCapacity = 16384;

  // Starts the log of the GPU, which is open. `client` must outlive it. Errors: those of
  // rm_error(), and of mmap().
  static Result<SwitchLog> open(RmClient& client, uint32_t gpu);
  SwitchLog(SwitchLog&& other) noexcept;
  SwitchLog& operator=(SwitchLog&&) = delete;
  ~SwitchLog();

  // Returns all records since the last read, the oldest first. Where the two clocks have parted
  // since they were compared, so that a record would lie in the future, all count as lost. Errors:
  // those of rm_error().
  Result<SwitchBatch> read();

 private:
  SwitchLog(RmClient& client, uint32_t gpu) : client_(&client), gpu_(gpu) {}
  const RmGpuDevice& own() const { return client_->gpus()[gpu_]; }
  std::vector<gs_switch_record> copy(uint32_t count, bool is_lapped, uint64_t& lost);
  Result<const void*> make_mapped(uint32_t& handle, size_t bytes, Fd& map_fd);

  RmClient* client_;
  uint32_t gpu_;
  uint32_t buffer_ = 0;
  Fd header_fd_, records_fd_;  // each mapping needs a descriptor of its own
  const gs_event_buffer_header* header_ = nullptr;
  const gs_switch_record* records_ = nullptr;
  uint32_t put_ = 0;                      // index of the next record to read
  std::optional<gs_switch_record> last_;  // that was read
  GpuClock clock_;
};

}  // namespace gpushare::nvrm
