// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/switch_log.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace gpushare::nvrm {
namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr size_t kRecordsBytes = SwitchLog::kCapacity * sizeof(gs_switch_record);
constexpr uint32_t kKernelPid = 0xFFFFFFFF;

}  // namespace

SwitchLog::SwitchLog(SwitchLog&& other) noexcept
    : client_(other.client_),
      gpu_(other.gpu_),
      buffer_(other.buffer_),
      header_fd_(std::move(other.header_fd_)),
      records_fd_(std::move(other.records_fd_)),
      header_(std::exchange(other.header_, nullptr)),
      records_(std::exchange(other.records_, nullptr)),
      put_(other.put_),
      next_seqno_(other.next_seqno_),
      has_seqno_(other.has_seqno_),
      clock_(other.clock_) {}

SwitchLog::~SwitchLog() {
  if (header_ != nullptr) client_->driver().unmap(header_, kHeaderBytes);
  if (records_ != nullptr) client_->driver().unmap(records_, kRecordsBytes);
}

Result<const void*> SwitchLog::make_mapped(uint32_t& handle, size_t bytes, Fd& map_fd) {
  gs_memory_params memory{};
  memory.attr = GS_MEMORY_ATTR_LOCATION_PCI | GS_MEMORY_ATTR_COHERENCY_CACHED;
  memory.attr2 = GS_MEMORY_ATTR2_USER_READ_ONLY;
  memory.size = bytes;
  auto made = client_->alloc(gpu_, own().client, GS_CLASS_MEMORY_DEVICELESS, &memory,
                             sizeof(memory), "allocate the switch log");
  if (!made) return std::unexpected(made.error());
  handle = *made;

  auto fd = client_->driver().open(GS_NV_CTL_MINOR);
  if (!fd) return std::unexpected(fd.error());
  map_fd = std::move(*fd);
  gs_nvos33_fd call{};
  call.h_client = own().client;
  call.h_device = own().client;  // memory without a device belongs to the client itself
  call.h_memory = handle;
  call.length = bytes;
  call.flags = 1;  // NVOS33_FLAGS_ACCESS_READ_ONLY
  call.fd = map_fd.get();
  if (auto done = rm_call(client_->driver(), own().control.get(), GS_NV_ESC_RM_MAP_MEMORY, call,
                          "map the switch log");
      !done)
    return std::unexpected(done.error());
  return client_->driver().map(map_fd.get(), bytes);
}

Result<SwitchLog> SwitchLog::open(RmClient& client, uint32_t gpu) {
  SwitchLog log(client, gpu);
  gs_event_buffer_params buffer{};
  auto header = log.make_mapped(buffer.h_header, kHeaderBytes, log.header_fd_);
  if (!header) return std::unexpected(header.error());
  log.header_ = static_cast<const gs_event_buffer_header*>(*header);
  auto records = log.make_mapped(buffer.h_records, kRecordsBytes, log.records_fd_);
  if (!records) return std::unexpected(records.error());
  log.records_ = static_cast<const gs_switch_record*>(*records);

  buffer.record_size = sizeof(gs_switch_record);
  buffer.record_count = kCapacity;
  buffer.h_subdevice = log.own().subdevice;
  auto made = client.alloc(gpu, log.own().client, GS_CLASS_EVENT_BUFFER, &buffer, sizeof(buffer),
                           "make the switch log");
  if (!made) return std::unexpected(made.error());
  log.buffer_ = *made;

  gs_bind_switch_log bind{};
  bind.h_buffer = log.buffer_;
  bind.record_size = sizeof(gs_switch_record);
  bind.level = GS_SWITCH_LOD_SIMPLE;
  bind.all_users = 1;
  if (auto done =
          client.subdevice_control(gpu, GS_CTRL_GR_BIND_SWITCH_LOG, bind, "bind the switch log");
      !done)
    return std::unexpected(done.error());
  gs_events_enable enable{};
  enable.enable = 1;
  enable.flags = GS_EVENTS_KEEP_NEWEST;
  if (auto done = rm_control(client.driver(), log.own().control.get(), log.own().client,
                             log.buffer_, GS_CTRL_EVENTS_ENABLE, enable, "start the switch log");
      !done)
    return std::unexpected(done.error());
  return log;
}

Result<SwitchBatch> SwitchLog::read() {
  const Time asked = std::chrono::steady_clock::now();
  if (auto done = clock_.refresh(*client_, gpu_, asked); !done)
    return std::unexpected(done.error());
  if (auto done = rm_control(client_->driver(), own().control.get(), own().client, buffer_,
                             GS_CTRL_EVENTS_FLUSH, nullptr, 0, "flush the switch log");
      !done)
    return std::unexpected(done.error());

  SwitchBatch batch;
  batch.complete_until = asked;
  // The driver writes a record and then `put`. It may write more during the copy, but it must fill
  // the whole rest of the ring before it reaches what is read here.
  const uint32_t put = __atomic_load_n(&header_->put, __ATOMIC_ACQUIRE) % kCapacity;
  const uint32_t fresh = (put + kCapacity - put_) % kCapacity;
  if (fresh > 0) {
    const uint16_t first = records_[put_].seqno;
    if (has_seqno_) batch.lost = static_cast<uint16_t>(first - next_seqno_);
    next_seqno_ = static_cast<uint16_t>(records_[(put + kCapacity - 1) % kCapacity].seqno + 1);
    has_seqno_ = true;
  }
  put_ = put;
  batch.records.reserve(fresh);
  for (uint32_t i = fresh; i > 0; --i) {
    const gs_switch_record record = records_[(put + kCapacity - i) % kCapacity];
    if (record.tag != GS_SWITCH_START && record.tag != GS_SWITCH_END) continue;
    batch.records.push_back({
        .time = clock_.to_monotonic(record.timestamp),
        .gpu = gpu_,
        .pid = record.pid == kKernelPid ? 0 : static_cast<pid_t>(record.pid),
        .context = record.context_id,
        .is_start = record.tag == GS_SWITCH_START,
    });
  }
  return batch;
}

}  // namespace gpushare::nvrm
