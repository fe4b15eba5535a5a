// SPDX-License-Identifier: Apache-2.0
// gpushare-top: looks at the control plane at an interval, shows it, and passes keys on.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>

#include "shmctl/plane/status_json.h"
#include "tools/agent/client.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"
#include "tools/top/command_line.h"
#include "tools/top/model.h"
#include "tools/top/terminal.h"
#include "tools/view/plain_view.h"

namespace gpushare {
namespace {

std::optional<Nanos> parse_interval(const std::string& text) {
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, seconds);
  if (failure != std::errc{} || rest != end || !(seconds >= 0.1 && seconds <= 60))
    return std::nullopt;
  return Nanos(std::llround(seconds * 1e9));
}

ExitCode fail(const Error& error) {
  fmt::print(stderr, "gpushare-top: {}\n", error.message());
  return kExitFailure;
}

ExitCode print_once(const Endpoints& endpoints, bool as_json) {
  const auto status = StatusSource(endpoints).read();
  if (!status) return fail(status.error());
  if (as_json) {
    fmt::print("{}\n", status_json(status->snapshot));
  } else {
    for (const std::string& line : status_lines(*status, stdout_screen())) fmt::print("{}\n", line);
  }
  return status->health.is_live() ? kExitOk : kExitFailure;
}

ExitCode watch(const Endpoints& endpoints, Nanos interval) {
  auto view = TopView::open();
  if (!view) return fail(view.error());
  StatusSource source(endpoints);
  TopModel model;
  MonotonicClock clock;
  Time next_look{};
  while (true) {
    if (clock.now() >= next_look) {
      if (!model.is_paused()) model.update(source.read(), clock.now());
      next_look = clock.now() + interval;
    }
    view->paint(compose(model, view->width(), view->height(), view->glyphs()));
    const auto key = view->read_key(next_look - clock.now());
    if (!key) continue;
    const TopModel::Effect effect = model.press(*key, rows_visible(model, view->height()));
    if (effect.quits) return kExitOk;
    if (!effect.request) continue;
    model.report_done(tell_agent(endpoints.socket, *effect.request));
    next_look = clock.now();  // the change shows at once
  }
}

ExitCode run(const Invocation& invocation) {
  const Endpoints endpoints = endpoints_of(invocation);
  const std::string text = invocation.value("interval").value_or("1");
  const auto interval = parse_interval(text);
  if (!interval) {
    fmt::print(stderr, "{}",
               usage_error(top_spec(), nullptr,
                           "--interval '" + text + "' is not a number of seconds, 0.1 to 60")
                   .text);
    return kExitUsage;
  }
  if (invocation.has("once") || invocation.has("json"))
    return print_once(endpoints, invocation.has("json"));
  return watch(endpoints, *interval);
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) try {
  using namespace gpushare;
  const auto invocation = parse_args(top_spec(), argc, argv);
  if (invocation) return finish_output(run(*invocation));
  const Stop& stop = invocation.error();
  fmt::print(stop.code == kExitOk ? stdout : stderr, "{}", stop.text);
  return finish_output(stop.code);
} catch (const std::exception& error) {  // out of memory, or a defect of ours
  std::fprintf(stderr, "gpushare-top: %s\n", error.what());
  return gpushare::kExitFailure;
}
