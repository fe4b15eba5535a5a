// SPDX-License-Identifier: Apache-2.0
// Opens any bytes as a region file. It must be refused, or what is read from it must be safe to use
// and recovery over it must end. If the first byte is even, the rest is the whole file; otherwise
// the rest are patches (3 bytes offset, 1 byte length, that many bytes) over a valid empty region.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "shmctl/base/fd.h"
#include "shmctl/plane/ledger.h"
#include "shmctl/plane/region.h"
#include "shmctl/plane/snapshot.h"

namespace {

using namespace gpushare;

void require(bool is_true) {
  if (!is_true) std::abort();
}

template <std::size_t N>
void require_text(const char (&text)[N]) {
  require(std::memchr(text, 0, N) != nullptr);
}

// A region that is damaged and repaired again; only the first slots of each table are damaged.
class PatchedRegion {
 public:
  PatchedRegion() {
    require(plane_.has_value());
    std::memcpy(header_, &region().header, sizeof header_);
  }
  ~PatchedRegion() { (void)ControlPlane::remove(name_); }

  const std::string& name() const { return name_; }
  Region& region() { return plane_->region(); }

  void apply(std::span<const uint8_t> patches) {
    const auto places = touched();
    while (patches.size() > 5) {
      const std::span<uint8_t> place = places[patches[0] % places.size()][patches[1] % kSlots];
      const std::size_t offset = (patches[2] | patches[3] << 8) % place.size();
      const std::size_t length =
          std::min({std::size_t{patches[4]}, patches.size() - 5, place.size() - offset});
      std::ranges::copy(patches.subspan(5, length), place.begin() + offset);
      patches = patches.subspan(5 + length);
    }
  }
  void mend() {
    for (const auto& slots : touched())
      for (const std::span<uint8_t> place : slots) std::ranges::fill(place, 0);
    std::memcpy(static_cast<void*>(&region().header), header_, sizeof header_);
  }

 private:
  static constexpr std::size_t kSlots = 4;
  using Places = std::array<std::span<uint8_t>, kSlots>;

  template <class T>
  static std::span<uint8_t> bytes_of(T& object) {
    return {reinterpret_cast<uint8_t*>(&object), sizeof object};
  }
  template <class T>
  static Places first_of(T* table) {
    return {bytes_of(table[0]), bytes_of(table[1]), bytes_of(table[2]), bytes_of(table[3])};
  }
  std::array<Places, 6> touched() {
    Region& all = region();
    const auto header = bytes_of(all.header), agent = bytes_of(all.agent);
    return {Places{header, header, header, header},
            Places{agent, agent, agent, agent},
            first_of(all.gpus),
            first_of(all.tenants),
            first_of(all.processes),
            first_of(all.ledger)};
  }

  std::string name_ = "/gpushare-fuzz-" + std::to_string(::getpid());
  Result<ControlPlane> plane_ = ControlPlane::create(name_);
  uint8_t header_[sizeof(RegionHeader)] = {};
};

void read_all(const std::string& name) {
  const auto plane = ControlPlane::open_read_only(name);
  if (!plane) {
    require(!plane.error().message().empty());
    return;
  }
  const auto snapshot = take_snapshot(*plane);
  require(snapshot.has_value());
  require(snapshot->gpus.size() <= kMaxGpus);
  require_text(snapshot->agent.driver_version);
  require_text(snapshot->agent.policy);
  require_text(snapshot->agent.observe_only_reason);
  for (const GpuRecord& gpu : snapshot->gpus) {
    require_text(gpu.uuid);
    require_text(gpu.name);
    require_text(gpu.pci);
  }
  for (const auto& [slot, tenant] : snapshot->tenants) {
    require_text(tenant.name);
    for (const TokenBucket& bucket : plane->region().tenants[slot].buckets)
      (void)(bucket.is_enabled() && bucket.tokens() > Nanos{0});
  }
  for (const auto& [slot, process] : snapshot->processes) {
    require(process.gpu < kMaxGpus && process.tenant < kMaxTenants);
    require_text(process.command);
    require_text(process.command_line);
    require_text(process.note);
    (void)plane->region().processes[slot].bucket.tokens();
  }
  for (const LedgerRecord& entry : snapshot->ledger)
    require(entry.channel_count <= kLedgerChannels);
}

void recover_all(Region& region) {
  Ledger ledger(region);
  ledger.for_each([&](uint32_t index, const LedgerRecord&) { ledger.clear(index); });
  for_each_entry(region, [](uint32_t, const LedgerRecord&) { require(false); });
}

void try_whole_file(std::span<const uint8_t> bytes) {
  const std::string name = "/gpushare-fuzz-whole-" + std::to_string(::getpid());
  {
    const Fd file(
        ::open(("/dev/shm" + name).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    require(::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  read_all(name);
  require(ControlPlane::remove(name).has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static PatchedRegion patched;
  if (size == 0) return 0;
  const std::span<const uint8_t> rest(data + 1, size - 1);
  if (data[0] % 2 == 0) {
    try_whole_file(rest);
  } else {
    patched.apply(rest);
    read_all(patched.name());
    recover_all(patched.region());
    patched.mend();
  }
  return 0;
}
