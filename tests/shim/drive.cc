// SPDX-License-Identifier: Apache-2.0
// shim_drive: runs a program with the shim preloaded and plays the agent for it and its children:
// moves them between partitions, closes and opens their gates. For tests and measurements, on the
// simulated GPU and on a real one. Its last line, on standard error, is one JSON object.
//
//   shim_drive [options] -- PROGRAM [ARGUMENT...]
#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "intercept/shim/host.h"
#include "intercept/shim/protocol.h"
#include "tests/workloads/flags.h"

extern char** environ;

namespace gpushare {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// Partitions that a process can have at a time (Partitions::kMost).
constexpr std::size_t kPool = 16;

struct Settings {
  std::string features = "gate", library, pci, groups = "0";
  uint64_t group_count = 15, length = 0, move_us = 0, gate_us = 0, closed_us = 0, seed = 1,
           settle_ms = 0;
};

Settings read_settings(int argc, char** argv) {
  Settings s;
  workloads::Flags flags("shim_drive", "runs a program under the shim: [options] -- PROGRAM ...");
  flags.add("--features", &s.features, "gate, partitions, both with a comma, or none");
  flags.add("--library", &s.library, "libgpushare.so, empty: ../../lib/ of this program");
  flags.add("--pci", &s.pci, "addresses of the GPUs with a comma; empty: all of the driver's");
  flags.add("--groups", &s.groups, "set of groups of 8 SMs, hexadecimal, 0: the whole GPU");
  flags.add("--group-count", &s.group_count, "how many groups the GPU has");
  flags.add("--move-us", &s.move_us, "move to a random partition so often; 0: stay");
  flags.add("--length", &s.length, "of every random partition, in groups; 0: all lengths, and all");
  flags.add("--gate-us", &s.gate_us, "close the gate so often; 0: never");
  flags.add("--closed-us", &s.closed_us, "and open it after so long");
  flags.add("--settle-ms", &s.settle_ms, "begin to move and to close only after so long");
  flags.add("--seed", &s.seed, "of the random partitions");
  flags.parse(argc, argv);
  if (s.group_count == 0 || s.group_count > 64) flags.fail("--group-count must be 1 to 64");
  if (s.length >= s.group_count) flags.fail("--length must be less than --group-count");
  return s;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

uint32_t features_of(const Settings& s) {
  uint32_t features = 0;
  for (const std::string& name : split(s.features)) {
    if (name == "gate") features |= kShimGate;
    if (name == "partitions") features |= kShimPartitions;
  }
  return features;
}

std::vector<std::string> gpus_of(const Settings& s) {
  if (!s.pci.empty()) return split(s.pci);
  std::vector<std::string> all;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", none))
    all.push_back(entry.path().filename());
  return all;
}

// A few runs of neighbouring groups; of all lengths also the whole GPU.
std::vector<uint64_t> pool_of(const Settings& s, std::mt19937_64& random) {
  std::vector<uint64_t> pool;
  if (s.length == 0) pool.push_back(0);
  const uint64_t count = s.group_count;
  const uint64_t possible = s.length == 0 ? count * (count + 1) / 2 : count - s.length + 1;
  while (pool.size() < std::min<uint64_t>(kPool, possible)) {
    const uint64_t length = s.length != 0 ? s.length : 1 + random() % count,
                   begin = random() % (count - length + 1);
    const uint64_t set = (length == 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1) << begin;
    if (std::ranges::find(pool, set) == pool.end()) pool.push_back(set);
  }
  return pool;
}

struct Counts {
  uint64_t launches = 0, moves = 0, waited_ns = 0, gave_up = 0;
};

Counts counts_of(const ShimSlot& slot) {
  Counts counts;
  for (const ShimStripe& stripe : slot.stripes) counts.launches += stripe.launches.load();
  for (const ShimGpu& gpu : slot.gpus) counts.moves += gpu.moves.load();
  counts.waited_ns = slot.waited_ns.load();
  counts.gave_up = slot.gave_up.load();
  return counts;
}

class Driver {
 public:
  Driver(const Settings& settings, ShimHost& host, std::vector<uint64_t> pool,
         std::mt19937_64 random)
      : settings_(settings), host_(host), pool_(std::move(pool)), random_(random) {
    const Time begin = clock_.now() + std::chrono::milliseconds(settings.settle_ms);
    if (settings.move_us != 0) next_move_ = begin;
    if (settings.gate_us != 0) next_gate_ = begin + Micros(settings.gate_us);
  }

  // Serves for a moment.
  void step() {
    pollfd waiting{host_.fd(), POLLIN, 0};
    const Time next = std::min({next_move_, next_gate_, next_beat_});
    const auto pause = std::max(next - clock_.now(), Nanos(0));
    const timespec limit{.tv_sec = 0, .tv_nsec = std::min<long>(pause.count(), 50'000'000)};
    ::ppoll(&waiting, 1, &limit, nullptr);
    host_.serve();
    const Time now = clock_.now();
    if (now >= next_beat_) {
      note_counts();
      host_.beat(now);
      next_beat_ = now + Nanos(kShimBeatNs / 4);
    }
    if (now >= next_move_) {
      move();
      next_move_ = now + Micros(settings_.move_us);
    }
    if (now >= next_gate_) {
      is_closed_ = !is_closed_;
      for_each([this](ShimSlot& slot) {
        is_closed_ ? ShimHost::close_gate(slot) : ShimHost::open_gate(slot);
      });
      closings_ += is_closed_ ? 1 : 0;
      next_gate_ = now + Micros(is_closed_ ? settings_.closed_us : settings_.gate_us);
    }
  }

  void report() {
    note_counts();
    Counts all;
    for (const auto& [process, counts] : counts_) {
      all.launches += counts.launches;
      all.moves += counts.moves;
      all.waited_ns += counts.waited_ns;
      all.gave_up += counts.gave_up;
    }
    fmt::print(stderr,
               "{{\"driven\":{},\"launches\":{},\"moves\":{},\"wishes\":{},\"not_applied\":{},"
               "\"closings\":{},\"waited_us\":{},\"gave_up\":{}}}\n",
               counts_.size(), all.launches, all.moves, wishes_, not_applied_, closings_,
               all.waited_ns / 1000, all.gave_up);
  }

 private:
  template <class Use>
  void for_each(const Use& use) {
    for (const ProcessId& process : host_.processes()) use(*host_.find(process));
  }

  void note_counts() {
    for (const ProcessId& process : host_.processes())
      counts_[process] = counts_of(*host_.find(process));
  }

  void move() {
    const uint64_t wanted = pool_[random_() % pool_.size()];
    for_each([&](ShimSlot& slot) {
      for (uint32_t i = 0; i < slot.head.gpu_count; ++i) {
        ShimGpu& gpu = slot.gpus[i];
        not_applied_ += gpu.applied.load() != gpu.wanted.load() ? 1 : 0;
        gpu.wanted.store(wanted);
        ++wishes_;
      }
    });
  }

  const Settings& settings_;
  ShimHost& host_;
  const MonotonicClock clock_;
  const std::vector<uint64_t> pool_;
  std::mt19937_64 random_;
  Time next_move_ = Time::max(), next_gate_ = Time::max(), next_beat_{};
  bool is_closed_ = false;
  uint64_t wishes_ = 0, not_applied_ = 0, closings_ = 0;
  std::map<ProcessId, Counts> counts_;
};

int run(const Settings& s, char** command) {
  const fs::path self = fs::read_symlink("/proc/self/exe").parent_path();
  const std::string library = s.library.empty()
                                  ? fs::weakly_canonical(self / "../../lib/libgpushare.so").string()
                                  : s.library;
  std::string folder = (fs::temp_directory_path() / "gs-drive-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  const std::string socket = folder + "/shim.sock";

  ShimWish wish{.features = features_of(s), .gpus = {}};
  for (const std::string& pci : gpus_of(s))
    wish.gpus.push_back({pci, std::strtoull(s.groups.c_str(), nullptr, 16)});
  auto host = ShimHost::listen(socket, [&](const ProcessId&, uid_t) { return wish; });
  if (!host) {
    fmt::print(stderr, "shim_drive: {}\n", host.error().message());
    return 1;
  }
  std::mt19937_64 random(s.seed);
  auto pool = pool_of(s, random);
  Driver driver(s, **host, std::move(pool), random);

  ::setenv("LD_PRELOAD", library.c_str(), 1);
  ::setenv(kShimSocketVariable, socket.c_str(), 1);
  pid_t child = 0;
  if (const int failure = ::posix_spawnp(&child, command[0], nullptr, nullptr, command, environ)) {
    fmt::print(stderr, "shim_drive: {}: {}\n", command[0], std::strerror(failure));
    return 1;
  }
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) driver.step();
  driver.report();
  host->reset();
  fs::remove_all(folder);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) {
  int own = 1;
  while (own < argc && std::strcmp(argv[own], "--") != 0) ++own;
  const auto settings = gpushare::read_settings(own, argv);
  if (own + 1 >= argc) {
    std::fputs("shim_drive: name a program behind --\n", stderr);
    return 2;
  }
  return gpushare::run(settings, argv + own + 1);
}
