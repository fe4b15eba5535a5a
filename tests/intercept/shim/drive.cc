// SPDX-License-Identifier: Apache-2.0
// shim_drive: runs programs with the shim preloaded and plays the agent for them and their
// children: moves them between partitions, closes and opens their gates, lets them take turns. For
// tests and measurements, on the simulated GPU and on a real one. The last line on standard error
// is one JSON object; before it come one for each process whose iterations are known, and one about
// the turns. One thread.
//
//   shim_drive [options] -- PROGRAM [ARGUMENT...] [-- PROGRAM [ARGUMENT...]]...
#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "shmctl/shim/host.h"
#include "shmctl/shim/protocol.h"
#include "tests/intercept/shim/alternate.h"
#include "tests/workloads/common/flags.h"

extern char** environ;

namespace gpushare {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// Partitions that a process can have at a time (Partitions::kMost).
constexpr std::size_t kPool = 16;

struct Settings {
  std::string features = "gate", library, pci, groups = "0", sets;
  uint64_t group_count = 16, length = 0, move_us = 0, gate_us = 0, closed_us = 0, seed = 1,
           settle_ms = 0, alternate = 0, announce = 0, ahead_us = 0;

  explicit Settings(workloads::Flags& flags) {
    flags.add("--features", &features, "gate, credit, partitions, iterations, with commas, or none",
              "--library", &library, "libgpushare.so, empty: ../../lib/ of this program", "--pci",
              &pci, "addresses of the GPUs with a comma; empty: all of the driver's", "--groups",
              &groups, "set of groups of 8 SMs, hexadecimal, 0: the whole GPU", "--group-count",
              &group_count, "how many groups the GPU has", "--move-us", &move_us,
              "move to a random partition so often; 0: stay", "--sets", &sets,
              "move to these in turn instead, and say when; as --groups, with commas", "--length",
              &length, "of every random partition, in groups; 0: all lengths, and all",
              "--announce", &announce, "1: say each partition one move ahead", "--gate-us",
              &gate_us, "close the gate so often; 0: never", "--closed-us", &closed_us,
              "and open it after so long", "--settle-ms", &settle_ms,
              "begin to move and to close only after so long", "--ahead-us", &ahead_us,
              "with credit: at most so much work is in line; 0: no bound", "--alternate",
              &alternate, "the programs take turns of so many iterations; 0: no", "--seed", &seed,
              "of the random partitions");
    flags.parse();
    if (group_count == 0 || group_count > 64) flags.fail("--group-count must be 1 to 64");
    if (length >= group_count) flags.fail("--length must be less than --group-count");
  }
};

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
    if (name == "iterations") features |= kShimIterations;
    if (name == "credit") features |= kShimCredit;
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

// The partitions that were named, or a few runs of neighbouring groups. With all lengths the whole
// GPU is one of them.
std::vector<uint64_t> pool_of(const Settings& s, std::mt19937_64& random) {
  std::vector<uint64_t> pool;
  for (const std::string& set : split(s.sets))
    pool.push_back(std::strtoull(set.c_str(), nullptr, 16));
  if (!pool.empty()) return pool;
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
  uint64_t launches = 0, moves = 0, waited_ns = 0, gave_up = 0, credits = 0, launch_ns = 0;
  PublishedIterations iterations;
};

Counts counts_of(const ShimSlot& slot) {
  Counts counts;
  counts.launches = launches_of(slot);
  for (const ShimGpu& gpu : slot.gpus) counts.moves += gpu.moves.load();
  counts.waited_ns = slot.waited_ns.load();
  counts.gave_up = slot.gave_up.load();
  counts.credits = slot.credit.issued.load();
  counts.launch_ns = slot.credit.launch_ns.load();
  counts.iterations = ShimHost::iterations(slot).value_or(PublishedIterations{});
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
    if (settings.alternate != 0) {
      alternation_.emplace(host, settings.alternate);
      next_turn_ = begin;
      ::prctl(PR_SET_TIMERSLACK, 1);
    }
  }

  // Serves until something is due, 50 ms at most.
  void step() {
    pollfd waiting{host_.fd(), POLLIN, 0};
    const Time next = std::min({next_move_, next_gate_, next_turn_, next_beat_});
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
    if (now >= next_turn_) {
      alternation_->step(now);
      next_turn_ = now + test::Alternation::kLook;
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
      print(process, counts.iterations);
      all.launches += counts.launches;
      all.moves += counts.moves;
      all.waited_ns += counts.waited_ns;
      all.gave_up += counts.gave_up;
      all.credits += counts.credits;
      all.launch_ns = std::max(all.launch_ns, counts.launch_ns);
    }
    if (alternation_) fmt::print(stderr, "{}\n", alternation_->report());
    fmt::print(stderr,
               "{{\"driven\":{},\"launches\":{},\"moves\":{},\"wishes\":{},\"not_applied\":{},"
               "\"closings\":{},\"waited_us\":{},\"gave_up\":{},\"credits\":{},"
               "\"launch_ns\":{}}}\n",
               counts_.size(), all.launches, all.moves, wanted_, not_applied_, closings_,
               all.waited_ns / 1000, all.gave_up, all.credits, all.launch_ns);
  }

 private:
  static void print(const ProcessId& process, const PublishedIterations& known) {
    if (known.begun == 0) return;
    constexpr const char* kSources[] = {"none", "recognised", "announced"};
    constexpr const char* kPhases[] = {"unknown", "prefill", "decode"};
    fmt::print(stderr,
               "{{\"pid\":{},\"source\":\"{}\",\"confidence\":{},\"phase\":\"{}\",\"begun\":{},"
               "\"ended\":{},\"mean_us\":{},\"p99_us\":{},\"launches\":{},\"busy_us\":{},"
               "\"latency_us\":{},\"arrivals\":{},\"slo_us\":{},\"skipped\":{}}}\n",
               process.pid, kSources[static_cast<uint32_t>(known.source) % 3], known.confidence,
               kPhases[static_cast<uint32_t>(known.phase) % 3], known.begun, known.ended,
               known.period_ns / 1000, known.p99_ns / 1000, known.launches / 1000,
               known.ended == 0 ? 0 : known.busy_ns / known.ended / 1000,
               known.ended == 0 ? 0 : known.latency_ns / known.ended / 1000, known.arrivals,
               known.slo_us, known.skipped);
  }

  template <class Use>
  void for_each(const Use& use) {
    for (const ProcessId& process : host_.processes()) use(*host_.find(process));
  }

  void note_counts() {
    for (const ProcessId& process : host_.processes())
      counts_[process] = counts_of(*host_.find(process));
  }

  uint64_t next_set() {
    return pool_[(settings_.sets.empty() ? random_() : turn_++) % pool_.size()];
  }
  void move() {
    const uint64_t wanted = next_set_;
    next_set_ = next_set();
    if (!settings_.sets.empty())
      fmt::print(stderr, "{{\"set\":\"{:x}\",\"at_ns\":{}}}\n", wanted,
                 clock_.now().time_since_epoch().count());
    for_each([&](ShimSlot& slot) {
      for (uint32_t i = 0; i < slot.head.gpu_count; ++i) {
        ShimGpu& gpu = slot.gpus[i];
        not_applied_ += gpu.applied.load() != gpu.wanted.load() ? 1 : 0;
        gpu.wanted.store(wanted);
        if (settings_.announce != 0) slot.soon[i].sets[0].store(next_set_);
        ++wanted_;
      }
    });
  }

  const Settings& settings_;
  ShimHost& host_;
  const MonotonicClock clock_;
  const std::vector<uint64_t> pool_;
  std::mt19937_64 random_;
  std::size_t turn_ = 0;
  uint64_t next_set_ = next_set();
  Time next_move_ = Time::max(), next_gate_ = Time::max(), next_turn_ = Time::max(), next_beat_{};
  std::optional<test::Alternation> alternation_;
  bool is_closed_ = false;
  uint64_t wanted_ = 0, not_applied_ = 0, closings_ = 0;
  std::map<ProcessId, Counts> counts_;
};

// The first exit status other than 0 of the programs that have ended.
int status_of(int status, int before) {
  if (before != 0) return before;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run(const Settings& s, const std::vector<char**>& commands) {
  const fs::path self = fs::read_symlink("/proc/self/exe").parent_path();
  const std::string library = s.library.empty()
                                  ? fs::weakly_canonical(self / "../../lib/libgpushare.so").string()
                                  : s.library;
  std::string folder = (fs::temp_directory_path() / "gs-drive-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  const std::string socket = folder + "/shim.sock";

  ShimRequest request{
      .features = features_of(s), .gpus = {}, .most_ahead_us = static_cast<uint32_t>(s.ahead_us)};
  for (const std::string& pci : gpus_of(s))
    request.gpus.push_back({pci, std::strtoull(s.groups.c_str(), nullptr, 16)});
  auto host = ShimHost::listen(socket, [&](const ProcessId&, uid_t) { return request; });
  if (!host) {
    fmt::print(stderr, "shim_drive: {}\n", host.error().message());
    return 1;
  }
  std::mt19937_64 random(s.seed);
  auto pool = pool_of(s, random);
  Driver driver(s, **host, std::move(pool), random);

  ::setenv("LD_PRELOAD", library.c_str(), 1);
  ::setenv(kShimSocketVariable, socket.c_str(), 1);
  std::size_t running = 0;
  for (char** command : commands) {
    pid_t child = 0;
    const int failure = ::posix_spawnp(&child, command[0], nullptr, nullptr, command, environ);
    if (failure != 0)
      fmt::print(stderr, "shim_drive: {}: {}\n", command[0], std::strerror(failure));
    running += failure == 0 ? 1 : 0;
  }
  int result = running == commands.size() ? 0 : 127;
  while (running > 0) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, WNOHANG);
    if (ended < 0) break;
    if (ended == 0) {
      driver.step();
      continue;
    }
    result = status_of(status, result);
    --running;
  }
  driver.report();
  host->reset();
  fs::remove_all(folder);
  return result;
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) {
  int own = 1;
  while (own < argc && std::strcmp(argv[own], "--") != 0) ++own;
  gpushare::workloads::Flags flags(
      "shim_drive", "runs programs under the shim: [options] -- PROGRAM ... [-- PROGRAM ...]", own,
      argv);
  const gpushare::Settings settings(flags);
  std::vector<char**> commands;
  for (int i = own; i < argc; ++i) {
    if (std::strcmp(argv[i], "--") != 0) continue;
    if (i != own && settings.alternate == 0)
      break;            // without turns there is one program, and all words are its own
    argv[i] = nullptr;  // it ends the words of the program before
    if (i + 1 < argc && std::strcmp(argv[i + 1], "--") != 0) commands.push_back(argv + i + 1);
  }
  if (commands.empty()) {
    std::fputs("shim_drive: name a program behind --\n", stderr);
    return 2;
  }
  return gpushare::run(settings, commands);
}
