// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/switch_log.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace gpushare::nvrm {
namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr size_t kRecordsBytes = SwitchLog::kCapacity * sizeof(gs_switch_record);
constexpr uint32_t kKernelPid = 0xFFFFFFFF;
constexpr uint64_t kSeqnos = 0x10000;

uint16_t after(const gs_switch_record& record) { return static_cast<uint16_t>(record.seqno + 1); }

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
      last_(other.last_),
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

// Copies the `count` records before put_. The driver may write more meanwhile, and while this
// thread stands still it may come round to what is copied here: what is not the same afterwards,
// and the record behind it, which may be half written, is left out with all before it.
std::vector<gs_switch_record> SwitchLog::copy(uint32_t count, bool is_lapped, uint64_t& lost) {
  const auto place = [&](uint32_t i) { return (put_ + kCapacity - count + i) % kCapacity; };
  std::vector<gs_switch_record> copied;
  copied.reserve(count);
  for (uint32_t i = 0; i < count; ++i) copied.push_back(records_[place(i)]);
  std::atomic_thread_fence(std::memory_order_acquire);
  uint32_t begin = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (i > 0 && copied[i].seqno != after(copied[i - 1])) begin = std::max(begin, i);
    const uint16_t seqno = __atomic_load_n(&records_[place(i)].seqno, __ATOMIC_RELAXED);
    if (copied[i].seqno != seqno) begin = std::min(i + 2, count);
  }
  const uint16_t first = begin < count ? copied[begin].seqno : after(copied.back());
  lost = last_ ? static_cast<uint16_t>(first - after(*last_)) : begin;
  if ((begin > 0 || is_lapped) && lost == 0) lost = kSeqnos;
  last_ = copied.back();
  copied.erase(copied.begin(), copied.begin() + begin);
  return copied;
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
  // The driver writes a record and then `put`.
  const uint32_t put = __atomic_load_n(&header_->put, __ATOMIC_ACQUIRE) % kCapacity;
  const bool is_lapped = last_ && std::memcmp(&records_[(put_ + kCapacity - 1) % kCapacity],
                                              &*last_, sizeof(gs_switch_record)) != 0;
  // All but the one that the driver writes next, which may be half written.
  const uint32_t fresh = is_lapped ? kCapacity - 1 : (put + kCapacity - put_) % kCapacity;
  put_ = put;
  if (fresh == 0) return batch;
  const std::vector<gs_switch_record> copied = copy(fresh, is_lapped, batch.lost);
  batch.read_at = std::chrono::steady_clock::now();
  batch.records.reserve(copied.size());
  bool is_ahead = false;
  for (const gs_switch_record& record : copied) {
    if (record.tag != GS_SWITCH_START && record.tag != GS_SWITCH_END) continue;
    const Time time = clock_.to_monotonic(record.timestamp);
    is_ahead = is_ahead || time > clock_.latest(batch.read_at);
    batch.records.push_back({
        .time = time,
        .gpu = gpu_,
        .pid = record.pid == kKernelPid ? 0 : static_cast<pid_t>(record.pid),
        .context = record.context_id,
        .is_start = record.tag == GS_SWITCH_START,
    });
  }
  if (is_ahead) {
    clock_.forget();
    batch.lost += batch.records.size();
    batch.records.clear();
  }
  return batch;
}

}  // namespace gpushare::nvrm
