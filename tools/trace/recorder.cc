// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/recorder.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "shmctl/base/version.h"
#include "tools/base/format.h"
#include "tools/view/process_table.h"
#include "tools/view/queue_view.h"

namespace gpushare {
namespace {

constexpr Nanos kSampleEvery = std::chrono::milliseconds(200);
// The agent reads the log every tick and ends the stream by itself; later than this it is stuck.
constexpr Nanos kGrace = std::chrono::seconds(3);

// JSON is UTF-8, however this terminal shows it.
std::string text_of(std::string_view field) { return printable(field, true); }

// The two clocks are read one after the other; a microsecond between them is nothing here.
int64_t epoch_less_monotonic() {
  const auto epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<Nanos>(epoch).count() -
         MonotonicClock().now().time_since_epoch().count();
}

class Recorder {
 public:
  Recorder(Client& client, StatusSource& source) : client_(client), source_(source) {}

  Result<> begin(Nanos length) {
    const std::chrono::duration<double> seconds = length;
    auto line = client_.ask({.op = "trace", .seconds = seconds.count()});
    if (!line) return std::unexpected(line.error());
    auto decoded = decode_trace(*line);
    if (!decoded) return std::unexpected(decoded.error());
    const auto* start = std::get_if<TraceStart>(&*decoded);
    if (start == nullptr)
      return make_error(std::errc::bad_message, "begin the trace", "no start_ns in the answer");
    result_.recording.start_ns = start->start_ns;
    result_.recording.epoch_ns = epoch_less_monotonic();
    result_.recording.about["gpushare"] = fmt::format("{} ({})", kVersion, kCommit);
    began_ = clock_.now();
    return {};
  }

  TraceResult follow(Nanos length, int stop_fd,
                     const std::function<void(Nanos, size_t)>& progress) {
    Time next_sample = began_;
    take_lines();  // what came together with the answer
    while (!is_over_) {
      const Time now = clock_.now();
      if (now >= next_sample) {
        sample();
        progress(now - began_, result_.recording.switches.size());
        next_sample = now + kSampleEvery;
      }
      if (now > began_ + length + kGrace) {
        fail({std::make_error_code(std::errc::timed_out), "record", "the agent sent no end"});
        break;
      }
      wait(stop_fd, next_sample - now);
    }
    sample();  // names of those who came last
    const bool is_whole = !result_.was_interrupted && !result_.failure;
    const uint64_t start_ns = result_.recording.start_ns;
    result_.recording.end_ns = is_whole ? start_ns + static_cast<uint64_t>(length.count())
                                        : std::max(start_ns, stored_ns(clock_.now()));
    return std::move(result_);
  }

 private:
  void fail(Error error) {
    result_.failure = std::move(error);
    is_over_ = true;
  }

  void wait(int stop_fd, Nanos most) {
    pollfd waiting[] = {{.fd = client_.fd(), .events = POLLIN, .revents = 0},
                        {.fd = stop_fd, .events = POLLIN, .revents = 0}};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(most).count();
    if (::poll(waiting, 2, static_cast<int>(ms)) < 0 && errno != EINTR)
      return fail(errno_error("wait for the agent").error());
    if (waiting[1].revents != 0) result_.was_interrupted = is_over_ = true;
    if (waiting[0].revents == 0) return;
    auto received = client_.receive();
    take_lines();
    if (!received && !is_over_) fail(std::move(received.error()));
  }

  void take_lines() {
    while (auto line = client_.buffered_line()) {
      auto decoded = decode_trace(*line);
      if (!decoded) return fail(std::move(decoded.error()));
      if (const auto* record = std::get_if<TraceSwitch>(&*decoded)) {
        result_.recording.switches.push_back(*record);
      } else if (auto* action = std::get_if<TraceAction>(&*decoded)) {
        result_.recording.actions.push_back(std::move(*action));
      } else if (auto* turn = std::get_if<TraceTurn>(&*decoded)) {
        result_.recording.turns.push_back(std::move(*turn));
      } else if (const auto* end = std::get_if<TraceEnd>(&*decoded)) {
        result_.recording.lost = end->lost;
        is_over_ = true;
      }
    }
  }

  // Names and shares are extras: without them the trace is still whole.
  void sample() {
    const auto status = source_.read();
    if (!status) return;
    TraceRecording& recording = result_.recording;
    const AgentRecord& agent = status->snapshot.agent;
    recording.about["driver"] = text_of({agent.driver_version, sizeof(agent.driver_version)});
    recording.about["policy"] = text_of({agent.policy, sizeof(agent.policy)});
    for (const ProcessRow& row : process_rows(status->snapshot)) {
      const ProcessRecord& process = row.record;
      recording.processes.insert_or_assign(
          process.pid,
          TraceProcess{text_of({process.command, sizeof(process.command)}), row.tenant});
      if (process.share_permille != kUnknown32)
        recording.shares.push_back(
            {stored_ns(status->taken), process.gpu, process.pid, process.share_permille});
    }
    if (!std::exchange(has_sampled_, true)) note_turns(status->snapshot);
    for (const GpuRecord& gpu : status->snapshot.gpus)
      recording.gpus.insert_or_assign(gpu.index, text_of({gpu.name, sizeof(gpu.name)}));
  }

  // The turns that were there before the recording: nobody is told of their begin.
  void note_turns(const PlaneSnapshot& snapshot) {
    for (const QueuedJob& job : queued_jobs(snapshot)) {
      if (job.record.turn != TurnState::kRunning) continue;
      for (const uint32_t gpu : job.gpus)
        result_.recording.turns.push_back({.t_ns = job.record.turn_since_ns,
                                           .gpu = gpu,
                                           .pid = job.record.pid,
                                           .job = job.name,
                                           .is_start = true});
    }
  }

  Client& client_;
  StatusSource& source_;
  MonotonicClock clock_;
  Time began_{};
  bool is_over_ = false, has_sampled_ = false;
  TraceResult result_;
};

}  // namespace

Result<TraceResult> record_trace(Client& client, StatusSource& source, Nanos length, int stop_fd,
                                 const std::function<void(Nanos, size_t)>& progress) {
  Recorder recorder(client, source);
  if (auto begun = recorder.begin(length); !begun) return std::unexpected(begun.error());
  return recorder.follow(length, stop_fd, progress);
}

}  // namespace gpushare
