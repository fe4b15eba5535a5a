// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "tools/base/format.h"
#include "tools/trace/turn_times.h"

namespace gpushare {
namespace {

// Added to a process's number, it is the number of the track on which its freezes are. No process
// has a number so large (PID_MAX_LIMIT is 2^22).
constexpr pid_t kFrozenTrack = 1 << 23;
// The number of the track of turns.
constexpr pid_t kTurnTrack = 1 << 24;

// The switches of one GPU, in order of time, become stays.
class Pairing {
 public:
  Pairing(uint32_t gpu, uint64_t start_ns, uint64_t end_ns, std::vector<Residence>& out)
      : gpu_(gpu), end_ns_(end_ns), previous_ns_(start_ns), out_(out) {}

  void add(const TraceSwitch& record) {
    const auto open = open_.find(record.pid);
    for (auto& [pid, stay] : open_)
      if (pid != record.pid || record.is_start)
        stay.bound_ns = std::min(stay.bound_ns, record.t_ns);
    if (record.is_start) {
      if (open != open_.end()) emit(record.pid, open->second.begin_ns, open->second.bound_ns, true);
      open_[record.pid] = {.begin_ns = record.t_ns, .bound_ns = end_ns_};
    } else if (open != open_.end()) {
      emit(record.pid, open->second.begin_ns, record.t_ns, false);
      open_.erase(open);
    } else {
      emit(record.pid, previous_ns_, record.t_ns, true);
    }
    previous_ns_ = record.t_ns;
  }

  void finish() {
    for (const auto& [pid, stay] : open_) emit(pid, stay.begin_ns, stay.bound_ns, true);
  }

 private:
  struct Open {
    uint64_t begin_ns = 0;
    uint64_t bound_ns = 0;  // the next record of this GPU: it was gone by then
  };

  void emit(pid_t pid, uint64_t begin_ns, uint64_t end_ns, bool is_clipped) {
    if (begin_ns < end_ns) out_.push_back({gpu_, pid, begin_ns, end_ns, is_clipped});
  }

  uint32_t gpu_;
  uint64_t end_ns_;
  uint64_t previous_ns_;
  std::map<pid_t, Open> open_;
  std::vector<Residence>& out_;
};

class TraceWriter {
 public:
  explicit TraceWriter(const TraceRecording& recording) : recording_(recording) {}

  std::string write() {
    const int64_t start_of_epoch = static_cast<int64_t>(recording_.start_ns) + recording_.epoch_ns;
    out_ = R"({"displayTimeUnit":"ns")";
    add(R"(,"baseTimeNanoseconds":{},"otherData":{{"producer":"gpushare")", start_of_epoch);
    add(R"(,"start_realtime_ns":"{}","start_monotonic_ns":"{}","lost_records":"{}")",
        start_of_epoch, recording_.start_ns, recording_.lost);
    for (const auto& [what, value] : recording_.about)
      add(",{}:{}", json_quoted(what), json_quoted(value));
    out_ += R"(},"traceEvents":[)";
    for (const Residence& stay :
         pair_switches(recording_.switches, recording_.start_ns, recording_.end_ns)) {
      event("X", label(stay.pid), stay.gpu, stay.pid, stay.begin_ns);
      add(R"(,"dur":{})", micros(stay.end_ns - stay.begin_ns));
      add(R"(,"cname":"{}","args":{{"tenant":{}{}}}}})", colour(stay.pid),
          json_quoted(tenant(stay.pid)), stay.is_clipped ? R"(,"clipped":true)" : "");
    }
    for (const Frozen& frozen :
         frozen_times(recording_.actions, recording_.start_ns, recording_.end_ns)) {
      const std::string name = frozen.reason.empty() ? "frozen" : "frozen: " + frozen.reason;
      event("X", name, frozen.gpu, frozen.pid + kFrozenTrack, frozen.begin_ns);
      add(R"(,"dur":{},"cname":"grey"}})", micros(frozen.end_ns - frozen.begin_ns));
    }
    for (const TraceAction& action : recording_.actions) add_action(action);
    for (const TurnTime& turn :
         turn_times(recording_.turns, recording_.start_ns, recording_.end_ns)) {
      const bool is_known = recording_.processes.contains(turn.pid);
      event("X", is_known ? turn.job + " " + label(turn.pid) : turn.job, turn.gpu, kTurnTrack,
            turn.begin_ns);
      add(R"(,"dur":{},"cname":"{}","args":{{"tenant":{}}}}})", micros(turn.end_ns - turn.begin_ns),
          colour(turn.pid), json_quoted(tenant(turn.pid)));
    }
    for (const ShareSample& sample : recording_.shares) {
      if (!is_inside(sample.t_ns)) continue;
      event("C", "share " + track_name(sample.pid), sample.gpu, sample.pid, sample.t_ns);
      add(R"(,"args":{{"%":{}.{}}}}})", sample.permille / 10, sample.permille % 10);
    }
    name_tracks();
    return std::move(out_) + "\n]}\n";
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  static std::string micros(uint64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

  bool is_inside(uint64_t t_ns) const {
    return t_ns >= recording_.start_ns && t_ns <= recording_.end_ns;
  }

  // The command, for a slice on its own track.
  std::string label(pid_t pid) const {
    const auto found = recording_.processes.find(pid);
    return found == recording_.processes.end() ? fmt::format("pid {}", pid) : found->second.command;
  }

  std::string tenant(pid_t pid) const {
    const auto found = recording_.processes.find(pid);
    return found == recording_.processes.end() ? "" : found->second.tenant;
  }

  // One of the names that chrome://tracing gives colours to. Perfetto makes its own of the names of
  // slices, which are the same in each recording, too.
  const char* colour(pid_t pid) const {
    static constexpr std::array kColours{"thread_state_running",
                                         "rail_response",
                                         "rail_animation",
                                         "rail_load",
                                         "cq_build_passed",
                                         "cq_build_attempt_running",
                                         "startup",
                                         "vsync_highlight_color"};
    uint32_t hash = 2166136261;  // FNV-1a: the same in every build
    for (const char byte : tenant(pid)) hash = (hash ^ static_cast<uint8_t>(byte)) * 16777619;
    return kColours[hash % kColours.size()];
  }

  std::string track_name(pid_t pid) const {
    if (pid == kTurnTrack) return "turns";
    if (pid >= kFrozenTrack) return track_name(pid - kFrozenTrack) + ": frozen";
    if (pid == 0) return "unknown process";
    const auto found = recording_.processes.find(pid);
    if (found == recording_.processes.end()) return fmt::format("pid {}", pid);
    return fmt::format("{} {} ({})", found->second.command, pid, found->second.tenant);
  }

  // A JSON object without its closing brace.
  void event(std::string_view phase, std::string_view name, uint32_t gpu, pid_t pid,
             uint64_t t_ns) {
    tracks_.emplace(gpu, pid);
    separate();
    add(R"({{"ph":"{}","name":{},"pid":{},"tid":{},"ts":{})", phase, json_quoted(name), gpu + 1,
        pid, micros(t_ns - recording_.start_ns));
  }

  void separate() {
    out_ += is_first_ ? "\n" : ",\n";
    is_first_ = false;
  }

  void add_action(const TraceAction& action) {
    if (!is_inside(action.t_ns)) return;
    using Kind = TraceAction::Kind;
    if (action.kind == Kind::kSlice) {
      event("i", "slice " + micros_text(action.slice_us), action.gpu, action.pid, action.t_ns);
      add(R"(,"s":"t","args":{{"slice_us":{}}}}})", action.slice_us);
      return;
    }
    const std::string name = action.kind == Kind::kThaw ? "thaw"
                             : action.reason.empty()    ? "freeze"
                                                        : "freeze: " + action.reason;
    event("i", name, action.gpu, action.pid, action.t_ns);
    add(R"(,"s":"t"}})");
  }

  void name_tracks() {
    std::set<uint32_t> gpus;
    for (const auto& [gpu, pid] : tracks_) {
      separate();
      add(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", gpu + 1,
          pid, json_quoted(track_name(pid)));
      gpus.insert(gpu);
    }
    // By tenant and process, what is frozen below what runs. Turns are the first: their process is
    // 0.
    std::vector<std::tuple<uint32_t, bool, std::string, pid_t, pid_t>> order;
    order.reserve(tracks_.size());
    for (const auto& [gpu, pid] : tracks_)
      order.emplace_back(gpu, pid != kTurnTrack, tenant(pid % kFrozenTrack), pid % kFrozenTrack,
                         pid);
    std::ranges::sort(order);
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& [gpu, is_of_process, name, process, track] = order[i];
      separate();
      add(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
          gpu + 1, track, i);
    }
    for (uint32_t gpu : gpus) {
      const auto found = recording_.gpus.find(gpu);
      const std::string name = fmt::format("GPU {}", gpu);
      separate();
      add(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", gpu + 1,
          json_quoted(found == recording_.gpus.end() ? name : name + " " + found->second));
    }
  }

  const TraceRecording& recording_;
  std::set<std::pair<uint32_t, pid_t>> tracks_;
  std::string out_;
  bool is_first_ = true;
};

}  // namespace

std::vector<Residence> pair_switches(const std::vector<TraceSwitch>& switches, uint64_t start_ns,
                                     uint64_t end_ns) {
  // By time; records of the same instant stay as they came.
  std::vector<size_t> order(switches.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair(switches[i].t_ns, i); });
  std::map<uint32_t, Pairing> gpus;
  std::vector<Residence> stays;
  for (size_t i : order) {
    TraceSwitch record = switches[i];
    record.t_ns = std::clamp(record.t_ns, start_ns, std::max(start_ns, end_ns));
    gpus.try_emplace(record.gpu, record.gpu, start_ns, end_ns, stays).first->second.add(record);
  }
  for (auto& [gpu, pairing] : gpus) pairing.finish();
  std::ranges::sort(stays, {}, [](const Residence& stay) {
    return std::tuple(stay.begin_ns, stay.gpu, stay.end_ns, stay.pid);
  });
  return stays;
}

std::vector<Frozen> frozen_times(const std::vector<TraceAction>& actions, uint64_t start_ns,
                                 uint64_t end_ns) {
  using Kind = TraceAction::Kind;
  // By time; what happened at the same instant stays as it came.
  std::vector<size_t> order(actions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair(actions[i].t_ns, i); });
  std::map<std::pair<uint32_t, pid_t>, Frozen> open;
  std::set<std::pair<uint32_t, pid_t>> seen;
  std::vector<Frozen> times;
  const auto close = [&](Frozen frozen, uint64_t t_ns) {
    frozen.end_ns = t_ns;
    if (frozen.begin_ns < frozen.end_ns) times.push_back(std::move(frozen));
  };
  for (const size_t i : order) {
    const TraceAction& action = actions[i];
    if (action.kind == Kind::kSlice) continue;
    const std::pair of(action.gpu, action.pid);
    const uint64_t t_ns = std::clamp(action.t_ns, start_ns, std::max(start_ns, end_ns));
    const bool is_first = seen.insert(of).second;
    const auto at = open.find(of);
    if (action.kind == Kind::kFreeze) {
      if (at == open.end()) open[of] = {action.gpu, action.pid, t_ns, 0, action.reason};
    } else if (at != open.end()) {
      close(at->second, t_ns);
      open.erase(at);
    } else if (is_first) {
      close({action.gpu, action.pid, start_ns, 0, ""}, t_ns);
    }
  }
  for (const auto& [of, frozen] : open) close(frozen, std::max(start_ns, end_ns));
  std::ranges::sort(times, {}, [](const Frozen& frozen) {
    return std::tuple(frozen.gpu, frozen.pid, frozen.begin_ns);
  });
  return times;
}

std::string trace_json(const TraceRecording& recording) { return TraceWriter(recording).write(); }

}  // namespace gpushare
