// SPDX-License-Identifier: Apache-2.0
// How large is the usage history after a week of samples of ten seconds, what does writing one
// cost, and how long does a report take? Prints one JSON object.
#include <fmt/format.h>
#include <sys/resource.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "shmctl/program/command_line.h"
#include "shmctl/usage/reader.h"
#include "shmctl/usage/store.h"

namespace gpushare {
namespace {

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Shares that vary as measured ones do.
int run(const std::string& path, uint32_t gpus, uint32_t tenants, uint32_t days, bool on_all) {
  auto store = UsageStore::open({.path = path});
  if (!store) {
    fmt::print(stderr, "{}\n", store.error().message());
    return 1;
  }
  constexpr WallSeconds kBegin = 1'800'000'000;
  std::mt19937 random(1);
  const uint32_t samples = days * 8640;
  const uint32_t each = on_all ? tenants : (tenants + gpus - 1) / gpus;
  const double before = cpu_seconds();
  double longest_ms = 0;
  for (uint32_t i = 0; i < samples; ++i) {
    UsageWrite what;
    what.start = kBegin + WallSeconds{10} * i;
    what.sample.watched_ms = 10'000;
    for (uint32_t tenant = 0; tenant < tenants; ++tenant)
      for (uint32_t gpu = 0; gpu < gpus; ++gpu) {
        if (!on_all && tenant % gpus != gpu) continue;
        const uint64_t share = 10'000 / each;
        const std::string name = fmt::format("tenant-{}", tenant);
        what.sample.amounts[{.tenant = name, .uid = 1000 + tenant, .gpu = gpu}] = {
            .used_ms = share - 20 + random() % 40,
            .entitled_ms = share,
            .waiting_ms = 10'000 - share - random() % 100};
        // A job an hour.
        what.jobs[{.name = fmt::format("run-{}", tenant + tenants * (i / 360)),
                   .command = "python",
                   .tenant = name,
                   .uid = 1000 + tenant}] = {.used_ms = share, .waiting_ms = 10'000 - share};
      }
    const auto start = std::chrono::steady_clock::now();
    if (auto written = store->write(what); !written) {
      fmt::print(stderr, "{}\n", written.error().message());
      return 1;
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    longest_ms = std::max(longest_ms, took.count());
  }
  const double cpu = cpu_seconds() - before;
  uint64_t bytes = 0;
  for (const char* suffix : {"", "-wal"}) bytes += std::filesystem::file_size(path + suffix);
  const WallSeconds end = kBegin + 10 * static_cast<WallSeconds>(samples);
  const auto begun = std::chrono::steady_clock::now();
  const auto day = read_usage(path, {.since = end - 86'400, .until = end});
  const std::chrono::duration<double, std::milli> read = std::chrono::steady_clock::now() - begun;
  auto database = Database::open(path);  // no other writer is there
  const auto fine = database ? database->ask(
                                   "SELECT (SELECT count(*) FROM samples WHERE tier=0)+"
                                   "(SELECT total(count) FROM packs WHERE tier=0)")
                             : Result<int64_t>(std::unexpected(database.error()));
  if (!day || !fine) return 1;
  fmt::print(
      "{{\"gpus\":{},\"tenants\":{},\"tenants_on_all_gpus\":{},\"days\":{},\"file_bytes\":{},"
      "\"fine_samples_kept\":{},\"fine_samples_written\":{},\"cpu_us_per_write\":{:.0f},"
      "\"longest_write_ms\":{:.1f},\"read_of_a_day_ms\":{:.0f}}}\n",
      gpus, tenants, on_all, days, bytes, *fine, samples, cpu / samples * 1e6, longest_ms,
      read.count());
  return 0;
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) {
  using gpushare::Invocation;
  const gpushare::Command program{
      .name = "usage_size",
      .summary = "writes the usage history of some days into FILE, and measures its size and cost.",
      .arguments = "FILE GPUS TENANTS DAYS WHERE",
      .details = "WHERE: `all` for tenants on all GPUs, `one` for each on one.",
      .examples = {"usage_size /tmp/usage.db 8 50 7 one"},
      .run = [](const Invocation& in) {
        const std::vector<std::string>& given = in.arguments;
        uint32_t numbers[3];
        for (int i = 0; i < 3; ++i) {
          const std::string& text = given[i + 1];
          const auto read = std::from_chars(text.data(), text.data() + text.size(), numbers[i]);
          if (read.ec != std::errc() || read.ptr != text.data() + text.size() || numbers[i] == 0)
            return in.wrong(fmt::format("'{}' is no number from 1 on", text));
        }
        if (given[4] != "all" && given[4] != "one")
          return in.wrong(fmt::format("'{}' is neither 'all' nor 'one'", given[4]));
        return gpushare::run(given[0], numbers[0], numbers[1], numbers[2], given[4] == "all") == 0
                   ? gpushare::kExitOk
                   : gpushare::kExitFailure;
      }};
  return gpushare::run_program(program, argc, argv);
}
