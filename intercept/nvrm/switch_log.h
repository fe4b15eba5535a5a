// SPDX-License-Identifier: Apache-2.0
// Reader of one GPU's context-switch log (driver-facts section 5): the driver writes a record into
// a ring in memory that it maps read-only into us, for every context that goes on or off the
// compute engine, of all users. One thread.
//
// The ring keeps the newest records. Every record carries a 16-bit number that also counts what the
// hardware dropped, so what was overwritten before we read it is counted, not guessed (up to 65,535
// between two reads).
#pragma once

#include "intercept/gpu.h"
#include "intercept/nvrm/client.h"
#include "intercept/nvrm/gpu_clock.h"

namespace gpushare::nvrm {

class SwitchLog {
 public:
  // 512 KiB. Two contexts that switch every 2 ms write 1,000 records a second (H200).
  static constexpr uint32_t kCapacity = 16384;

  static Result<SwitchLog> open(RmClient& client, uint32_t gpu);
  SwitchLog(SwitchLog&& other) noexcept;
  SwitchLog& operator=(SwitchLog&&) = delete;
  ~SwitchLog();

  // All records since the last read, oldest first.
  Result<SwitchBatch> read();

 private:
  SwitchLog(RmClient& client, uint32_t gpu) : client_(&client), gpu_(gpu) {}
  Result<const void*> make_mapped(uint32_t& handle, size_t bytes, Fd& map_fd);

  RmClient* client_;
  uint32_t gpu_;
  uint32_t buffer_ = 0;
  Fd header_fd_, records_fd_;  // a mapping lives on a descriptor of its own
  const gs_event_buffer_header* header_ = nullptr;
  const gs_switch_record* records_ = nullptr;
  uint32_t put_ = 0;  // index of the next record to read
  uint16_t next_seqno_ = 0;
  bool has_seqno_ = false;
  GpuClock clock_;
};

}  // namespace gpushare::nvrm
