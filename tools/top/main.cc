// SPDX-License-Identifier: Apache-2.0
// gpushare-top: looks at the control plane at an interval, shows it, and passes keys on.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tools/agent/client.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"
#include "tools/base/users.h"
#include "tools/doctor/advice.h"
#include "tools/top/draw/frame.h"
#include "tools/top/kept.h"
#include "tools/top/looks.h"
#include "tools/top/model/model.h"
#include "tools/top/nvml_sensors.h"
#include "tools/top/signals.h"
#include "tools/top/terminal.h"
#include "tools/view/plain_view.h"

namespace gpushare {
namespace {

ExitCode fail(const Error& error) {
  fmt::print(stderr, "gpushare-top: {}\n", error.message());
  return kExitFailure;
}

ExitCode print_once(const Endpoints& endpoints, const Invocation& invocation,
                    const RowChoice& choice) {
  auto status = StatusSource(endpoints).read();
  if (!status) return fail(status.error());
  if (invocation.has("json")) choose_processes(status->snapshot, choice, user_name);
  return print_status(*status, invocation, [&](const Status& shown, const Screen& screen) {
    return status_lines(shown, screen, choice);
  });
}

void look(StatusSource& source, Sensors& sensors, TopModel& model, Time now) {
  Result<Status> status = source.read();
  std::vector<std::string> uuids;
  if (status && status->snapshot.agent.is_simulated == 0)
    for (const GpuRecord& gpu : status->snapshot.gpus)
      uuids.push_back(printable({gpu.uuid, sizeof(gpu.uuid)}));
  model.update(std::move(status), now, uuids.empty() ? SensorsLook{} : sensors.read(uuids));
}

// Stops at the first thing that cannot be done.
Result<> perform(const Endpoints& endpoints, const Deed& deed) {
  for (const Request& request : deed.requests)
    if (auto done = tell_agent(endpoints.socket, request); !done) return done;
  for (const ProcessSignal& signal : deed.signals)
    if (auto done = send_signal(signal); !done) return done;
  return {};
}

// Of settings that were made and have no effect here. Whether programs have the shim is not known.
using Warnings = std::vector<std::string>;
Warnings warnings_of(const Endpoints& endpoints, const Deed& deed) {
  Warnings warnings;
  for (const Request& request : deed.requests)
    std::ranges::move(no_effect_warnings(endpoints, request.tenant, request.settings, true),
                      std::back_inserter(warnings));
  return warnings;
}

ExitCode watch(const Endpoints& endpoints, Nanos interval, TopModel& model) {
  auto view = TopView::open();
  if (!view) return fail(view.error());
  StatusSource source(endpoints);
  NvmlSensors sensors;
  MonotonicClock clock;
  Looks looks(interval);
  while (true) {
    if (clock.now() >= looks.next()) {
      if (!model.is_paused()) look(source, sensors, model, clock.now());
      looks.looked(clock.now());
    }
    view->paint(compose(model, view->screen()));
    const auto key = view->read_key(looks.next() - clock.now());
    if (!key) continue;
    const TopScreen screen = view->screen();
    const TopModel::Effect effect = key->kind == Key::Kind::kClick
                                        ? model.click(hit_at(model, screen, key->x, key->y))
                                        : model.press(*key, rows_visible(model, screen));
    if (effect.quits) return kExitOk;
    if (effect.deed.is_empty()) continue;
    const Result<> done = perform(endpoints, effect.deed);
    model.report_done(done, done ? warnings_of(endpoints, effect.deed) : Warnings{});
    looks.changed(clock.now());
  }
}

ExitCode run(const Invocation& invocation) {
  const Endpoints endpoints = endpoints_of(invocation);
  std::optional<Field> sort;
  if (const auto name = invocation.value("sort")) {
    sort = sort_field_named(*name);
    if (!sort)
      return invocation.wrong(
          fmt::format("--sort takes one of {}, not '{}'", sort_field_names(), *name));
  }
  if (invocation.has("once") || invocation.has("json"))
    return print_once(endpoints, invocation, {.sort = sort, .filter = invocation.text("filter")});
  const std::string path = choices_path();
  const Result<TopChoices> kept = read_choices(path);
  TopChoices choices = kept ? *kept : TopChoices{};
  if (sort) {
    choices.sort = *sort;
    choices.is_reversed = false;
  }
  TopModel model(choices, invocation.text("filter"), user_name);
  if (!kept) model.say(kept.error().message() + "; everything has its default", true);
  const ExitCode code = watch(endpoints, invocation.seconds("interval"), model);
  // What the command line asked for is for this time only, and a file that is wrong stays.
  if (code != kExitOk || !kept || path.empty() || model.choices() == choices) return code;
  if (auto done = write_choices(path, model.choices()); !done) return fail(done.error());
  return code;
}

Command program() {
  return with_endpoints({
      .name = "gpushare-top",
      .summary = "watch who shares the GPUs.",
      .details =
          "Press ? or F1 for the keys. What is not known is shown as ?. The exit code of --once "
          "and "
          "--json is 1 when no agent runs.",
      .options = {{"once", '1', "", "Print one table and exit"},
                  {"json", 0, "", "Print the status as JSON and exit"},
                  {"wide", 0, "", "With --once: cut nothing to the width of the terminal"},
                  {.name = "sort",
                   .letter = 's',
                   .value = "COLUMN",
                   .help = "Begin with the rows in the order of this column; otherwise in that of "
                           "the last time, with --once by GPU",
                   .words = sort_field_names()},
                  {"filter", 'f', "TEXT", "Begin with the rows that contain this text"},
                  {.name = "interval",
                   .letter = 'i',
                   .value = "SECONDS",
                   .help = "Time between two looks",
                   .otherwise = "1",
                   .range = Range{0.1, 60}}},
      .examples = {"gpushare-top", "gpushare-top --interval 0.2",
                   "gpushare-top --sort mem --filter alice", "gpushare-top --once"},
      .run = run,
  });
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) { return gpushare::run_program(gpushare::program(), argc, argv); }
