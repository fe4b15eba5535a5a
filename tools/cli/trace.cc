// SPDX-License-Identifier: Apache-2.0
// gpushare trace: records what the hardware switches to a file.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tools/base/atomic_file.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"
#include "tools/trace/recorder.h"

namespace gpushare {
namespace {

double seconds_of(Nanos duration) { return std::chrono::duration<double>(duration).count(); }

ExitCode trace(const Invocation& invocation) {
  const Nanos length = invocation.seconds("duration");
  const std::string path = invocation.text("output");
  const Endpoints endpoints = endpoints_of(invocation);
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
  if (auto written = write_whole_file(path, trace_json(recording)); !written)
    return report(written.error());
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
          "changes as marks, and the shares as counters. A slice is residence: the context was on "
          "the GPU, busy or not.\n"
          "Interrupt (Ctrl-C) ends the recording early and still writes the file.",
      .options = {{.name = "duration",
                   .letter = 'd',
                   .value = "SECONDS",
                   .help = "How long to record",
                   .otherwise = "5",
                   .range = Range{0.1, 3600}},
                  {"output", 'o', "FILE", "Where to write", "gpushare-trace.json"}},
      .examples = {"gpushare trace -d 2 -o switches.json"},
      .run = trace,
  };
}

}  // namespace gpushare
