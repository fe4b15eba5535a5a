// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/measure.h"

#include <algorithm>
#include <numeric>

namespace gpushare {
namespace {

constexpr const char* kStep = "measure the shares";
constexpr double kNsPerSecond = 1e9;

}  // namespace

Result<DemoReading> read_demo(const PlaneSnapshot& snapshot, uint32_t gpu) {
  DemoReading reading{.at_ns = snapshot.agent.published_ns, .agent_pid = snapshot.agent.agent_pid};
  for (const GpuRecord& record : snapshot.gpus)
    if (record.index == gpu) reading.log_records = record.log_records;
  for (const DemoProgram& program : demo_programs()) {
    const auto tenant = std::ranges::find_if(snapshot.tenants, [&](const auto& candidate) {
      return candidate.record.name == program.tenant;
    });
    if (tenant == snapshot.tenants.end() || gpu >= kMaxGpus)
      return make_error(std::errc::no_such_file_or_directory, kStep,
                        "the agent has no tenant " + std::string(program.tenant));
    reading.used_ns.push_back(tenant->record.gpu[gpu].gpu_time_ns);
  }
  return reading;
}

Result<DemoShares> compare_readings(const DemoReading& from, const DemoReading& to) {
  if (from.agent_pid != to.agent_pid || from.used_ns.size() != to.used_ns.size() ||
      from.at_ns >= to.at_ns)
    return std::unexpected(
        Error{{}, kStep, "the agent stopped, or was started again, while the programs ran"});
  const double length_ns = static_cast<double>(to.at_ns - from.at_ns);
  DemoShares shares;
  std::vector<DemoClaim> claims;
  for (size_t i = 0; i < to.used_ns.size(); ++i) {
    const DemoProgram& program = demo_programs()[i];
    const double used = (static_cast<double>(to.used_ns[i]) -  //
                         static_cast<double>(from.used_ns[i])) /
                        length_ns;
    shares.measured.push_back(used);
    claims.push_back(program.claim);
    if (!program.is_saturating) claims.back().used = used;
  }
  // Two records a switch: one goes, one comes.
  shares.switches_per_s =
      static_cast<double>(to.log_records - from.log_records) / 2 * kNsPerSecond / length_ns;
  const double unused = 1 - std::accumulate(shares.measured.begin(), shares.measured.end(), 0.0);
  shares.switching = switching_share(shares.switches_per_s, unused);
  shares.target = target_shares(claims, shares.switching);
  return shares;
}

}  // namespace gpushare
