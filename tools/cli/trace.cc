// SPDX-License-Identifier: Apache-2.0
// gpushare trace: records what the hardware switches to a file.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "tools/base/atomic_file.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"
#include "tools/trace/merge.h"
#include "tools/trace/recorder.h"

namespace gpushare {
namespace {

double seconds_of(Nanos duration) { return std::chrono::duration<double>(duration).count(); }

Result<std::string> contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (file) text << file.rdbuf();
  if (!file) return make_error(std::errc::no_such_file_or_directory, "read", path);
  return std::move(text).str();
}

// The recording, which `name` is for a person, with what --merge names if it is given.
Result<std::string> merged(const Invocation& invocation, const std::string& recording,
                           const std::string& name) {
  const auto other = invocation.value("merge");
  if (!other) return recording;
  const auto text = contents_of(*other);
  if (!text) return std::unexpected(text.error());
  return merge_traces(recording, *text, {.recording = name, .other = *other});
}

// What was recorded is written in any case: it cannot be had again.
ExitCode write_new(const Invocation& invocation, WholeFile& file, const std::string& recording) {
  const auto whole = merged(invocation, recording, "the recording");
  if (const auto written = file.write(whole.value_or(recording)); !written)
    return report(written.error());
  if (whole) return kExitOk;
  const std::string path = invocation.text("output");
  report(whole.error());
  fmt::print(stderr,
             "gpushare: {0} has the recording alone; 'gpushare trace --from {0} --merge FILE -o "
             "BOTH' adds it to another trace\n",
             path == "-" ? "what was printed" : path);
  return kExitFailure;
}

ExitCode merge_earlier(const Invocation& invocation, const std::string& from) {
  if (!invocation.has("merge")) return invocation.wrong("--from takes --merge with it");
  const auto recording = contents_of(from);
  if (!recording) return report(recording.error());
  auto file = WholeFile::open(invocation.text("output"));
  if (!file) return report(file.error());
  const auto whole = merged(invocation, *recording, from);
  if (!whole) return report(whole.error());
  const auto written = file->write(*whole);
  return written ? kExitOk : report(written.error());
}

ExitCode trace(const Invocation& invocation) {
  if (const auto from = invocation.value("from")) return merge_earlier(invocation, *from);
  const Nanos length = invocation.seconds("duration");
  const std::string path = invocation.text("output");
  const Endpoints endpoints = endpoints_of(invocation);
  auto file = WholeFile::open(path);
  if (!file) return report(file.error());
  auto client = Client::connect(endpoints.socket);
  if (!client) return report(client.error());
  StatusSource source(endpoints);
  const Fd stop = interrupt_fd();
  const bool has_terminal = ::isatty(STDERR_FILENO) != 0;
  if (!has_terminal) fmt::print(stderr, "recording {} s\n", seconds_of(length));
  auto result = record_trace(*client, source, length, stop.get(), [&](Nanos so_far, size_t count) {
    if (has_terminal)
      fmt::print(stderr, "\rrecording {:.1f} of {:.1f} s, {} switches ",
                 seconds_of(std::min(so_far, length)), seconds_of(length), count);
  });
  if (has_terminal) fmt::print(stderr, "\r\033[K");
  if (!result) return report(result.error());

  const TraceRecording& recording = result->recording;
  if (const ExitCode code = write_new(invocation, *file, trace_json(recording)); code != kExitOk)
    return code;
  fmt::print(stderr, "{}: {:.1f} s, {} switches, {} freezes, thaws and slice changes{}\n", path,
             static_cast<double>(recording.end_ns - recording.start_ns) / 1e9,
             recording.switches.size(), recording.actions.size(),
             recording.lost > 0 ? fmt::format(", {} records lost", recording.lost) : "");
  if (recording.switches.empty())
    fmt::print(stderr, "no switches: a program that is alone on its GPU is never switched\n");
  const std::optional<Error>& failure = result->failure;
  return failure ? report(*failure) : kExitOk;
}

}  // namespace

Command trace_command() {
  return {
      .name = "trace",
      .summary = "Record the hardware's context switches to a file for Perfetto.",
      .details =
          "The file is Chrome trace JSON; open it at ui.perfetto.dev or chrome://tracing. For each "
          "GPU it has a track per process with its times on the GPU, freezes, thaws and slice "
          "changes as marks, the times for which it was frozen on a track below, and the shares as "
          "counters. A slice is residence: the context was on the GPU, busy or not.\n"
          "With --merge the events are added to another program's trace of the same time, such as "
          "one of torch.profiler, which is read when the recording is over.\n"
          "Interrupt (Ctrl-C) ends the recording early and still writes the file.",
      .options = {{"duration", 'd', "SECONDS", "How long to record", "5", "", Range{0.1, 3600}},
                  {"output", 'o', "FILE", "Where to write; - is standard output",
                   "gpushare-trace.json"},
                  {"merge", 0, "FILE", "Add the events to this Chrome trace JSON"},
                  {"from", 0, "FILE",
                   "With --merge: take this earlier recording, and record none"}},
      .examples = {"gpushare trace -d 2 -o switches.json",
                   "gpushare trace --from switches.json --merge torch.json -o both.json"},
      .run = trace,
  };
}

}  // namespace gpushare
