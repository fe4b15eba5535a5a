// SPDX-License-Identifier: Apache-2.0
// How long does a scrape of gpushare-exporter take, and how much memory does it need, with as much
// in the control plane as there is room for: 1,000 tenants on 8 GPUs, and all 2,048 processes?
//
//   bench/record.py bench/results/exporter_scrape.jsonl -- build/bin/bench/exporter_scrape
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "shmctl/base/fd.h"
#include "shmctl/plane/fields.h"
#include "shmctl/plane/snapshot.h"
#include "shmctl/program/child.h"
#include "shmctl/program/command_line.h"

namespace gpushare {
namespace {

constexpr uint32_t kTenants = 1000, kGpus = 8;
constexpr const char* kRequest =
    "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";

void fill(Region& region) {
  const Publication publication(region);
  AgentRecord agent;
  agent.agent_pid = static_cast<uint32_t>(::getpid());
  agent.published_ns = static_cast<uint64_t>(MonotonicClock().now().time_since_epoch().count());
  agent.tick_us = 60'000'000;  // it stays fresh during the measurement
  agent.gpu_count = kGpus;
  write_record(region.agent, agent);
  for (uint32_t g = 0; g < kGpus; ++g) {
    GpuRecord gpu;
    gpu.index = g;
    gpu.busy_permille = 950;
    gpu.memory_bytes = gpu.memory_used_bytes = uint64_t{141} << 30;
    put_text(gpu.uuid, fmt::format("GPU-{:08x}-aaaa-bbbb-cccc-0123456789ab", g));
    put_text(gpu.name, "NVIDIA H200");
    write_record(region.gpus[g], gpu);
  }
  for (uint32_t t = 0; t < kTenants; ++t) {
    TenantRecord tenant;
    put_text(tenant.name, fmt::format("department-{:02}-project-{:04}", t % 40, t));
    tenant.quota_us = 30'000;
    tenant.iteration_us = 1'234'567'890 + t;
    std::ranges::fill(tenant.iteration_counts, 1'000 + t);
    for (uint32_t g = 0; g < kGpus; ++g)
      tenant.gpu[g] = {.gpu_time_ns = uint64_t{123'456'789'012} + t,
                       .share_permille = t % 10,
                       .target_permille = t % 12};
    write_record(region.tenants[t].record, tenant);
  }
  for (uint32_t p = 0; p < kMaxProcesses; ++p) {
    ProcessRecord process;
    process.pid = ::getpid();
    process.start_ticks = p + 1;
    process.gpu = p % kGpus;
    process.tenant = p % kTenants;
    process.state = static_cast<ProcessState>(p % 6);
    process.switches_per_s = 200 + p;
    process.memory_bytes = uint64_t{p + 1} << 24;
    write_record(region.processes[p].record, process);
  }
}

// Returns how many bytes came; 0 when something was wrong.
size_t scrape(uint16_t port) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 0;
  const std::string_view request(kRequest);
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return 0;
  std::vector<char> bytes(1 << 20);
  size_t total = 0;
  for (ssize_t n = 0; (n = ::recv(socket.get(), bytes.data(), bytes.size(), 0)) > 0;)
    total += static_cast<size_t>(n);
  return total;
}

// A line of /proc/PID/status, in KiB.
uint64_t kibibytes(pid_t pid, std::string_view name) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name)) return std::stoull(line.substr(name.size() + 1));
  return 0;
}

// Milliseconds that the process's one thread was on a CPU, which a loaded machine does not
// lengthen.
double cpu_ms(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/schedstat", pid));
  double ns = 0;
  file >> ns;
  return ns / 1e6;
}

ExitCode fail(const Error& error) {
  fmt::print(stderr, "exporter_scrape: {}\n", error.message());
  return kExitFailure;
}

ExitCode measure(const std::string& region, uint64_t rounds) {
  auto exporter = Child::start({.command = {own_folder() + "/../gpushare-exporter", "--region",
                                            region, "--listen", "127.0.0.1:0"}});
  if (!exporter) return fail(exporter.error());
  const auto listens = exporter->await(
      "listen", [&] { return exporter->output().ends_with('\n'); }, std::chrono::seconds(20));
  if (!listens) return fail(listens.error());
  const std::string said = exporter->output();
  const auto port = static_cast<uint16_t>(std::stoul(said.substr(said.rfind(' ') + 1)));
  std::vector<double> ms;
  size_t bytes = 0;
  const MonotonicClock clock;
  const double cpu_before = cpu_ms(exporter->pid());
  for (uint64_t i = 0; i < rounds; ++i) {
    const Time begin = clock.now();
    bytes = scrape(port);
    ms.push_back(std::chrono::duration<double, std::milli>(clock.now() - begin).count());
    if (bytes == 0) return fail({{}, "scrape", exporter->errors()});
  }
  const double cpu_each = (cpu_ms(exporter->pid()) - cpu_before) / static_cast<double>(rounds);
  std::ranges::sort(ms);
  fmt::print(
      R"({{"tenants":{},"gpus":{},"processes":{},"rounds":{},"bytes":{},)"
      R"("cpu_ms_per_scrape":{:.1f},"scrape_p50_ms":{:.1f},"scrape_p99_ms":{:.1f},"scrape_longest_ms":{:.1f},)"
      R"("peak_rss_mib":{:.1f},"anonymous_rss_mib":{:.1f},"shared_rss_mib":{:.1f}}})"
      "\n",
      kTenants, kGpus, kMaxProcesses, rounds, bytes, cpu_each, ms[ms.size() / 2],
      ms[ms.size() * 99 / 100], ms.back(), kibibytes(exporter->pid(), "VmHWM:") / 1024.0,
      kibibytes(exporter->pid(), "RssAnon:") / 1024.0,
      kibibytes(exporter->pid(), "RssShmem:") / 1024.0);
  return kExitOk;
}

ExitCode run(const Invocation& in) {
  const std::string region = fmt::format("/gpushare-bench-{}", ::getpid());
  auto plane = ControlPlane::create(region);
  if (!plane) return fail(plane.error());
  fill(plane->region());
  const ExitCode code = measure(region, in.whole("rounds"));
  const auto removed = ControlPlane::remove(region);
  return removed ? code : fail(removed.error());
}

Command program() {
  return {.name = "exporter_scrape",
          .summary = "time and memory of a scrape of a full control plane.",
          .options = {number_option("rounds", "N", "How many scrapes", {1, 100'000, true}, "200")},
          .run = run};
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) { return gpushare::run_program(gpushare::program(), argc, argv); }
