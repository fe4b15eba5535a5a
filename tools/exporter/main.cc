// SPDX-License-Identifier: Apache-2.0
// gpushare-exporter: serves what the control plane shows to Prometheus, or writes it to a file for
// the node exporter. It needs no privilege and asks the agent nothing.
#include <fmt/format.h>
#include <malloc.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "shmctl/program/wait.h"
#include "tools/agent/status_source.h"
#include "tools/base/atomic_file.h"
#include "tools/base/endpoints.h"
#include "tools/exporter/http_server.h"
#include "tools/exporter/metrics.h"

namespace gpushare {
namespace {

constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kFront =
    "<!DOCTYPE html><title>gpushare-exporter</title><h1>gpushare-exporter</h1>"
    "<p><a href=\"/metrics\">Metrics</a></p>\n";

ExitCode fail(const Error& error) {
  fmt::print(stderr, "gpushare-exporter: {}\n", error.message());
  return error.code == std::errc::invalid_argument ? kExitUsage : kExitFailure;
}

// Reads the control plane alone: whoever scrapes must not make the agent work.
class Metrics {
 public:
  Metrics(Endpoints endpoints, std::string pods)
      : source_(std::move(endpoints)), pods_(std::move(pods)) {}

  std::string text() {
    const auto status = source_.read_plane();
    if (!status) return metrics_without_status();
    std::vector<Workload> workloads = workloads_.of(status->snapshot);
    const auto names = pods_.read();
    if (!names) fail(names.error());  // the pods are without names then
    if (names)
      for (Workload& workload : workloads) add_names(workload, **names);
    const auto epoch = std::chrono::system_clock::now().time_since_epoch();
    return metrics_text(
        *status, workloads,
        std::chrono::duration_cast<Nanos>(epoch) - MonotonicClock().now().time_since_epoch());
  }

 private:
  StatusSource source_;
  Workloads workloads_;
  PodNamesReader pods_;
};

// "9835", "127.0.0.1:9835" or "[::1]:9835".
struct Place {
  std::string address = "::";
  uint16_t port = 0;
};
std::optional<Place> parse_place(std::string_view text) {
  Place place;
  if (const size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    std::string_view address = text.substr(0, colon);
    if (address.starts_with('[') && address.ends_with(']'))
      address = address.substr(1, address.size() - 2);
    if (!address.empty()) place.address = address;
    text.remove_prefix(colon + 1);
  }
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [rest, failure] = std::from_chars(begin, end, place.port);
  if (failure != std::errc{} || rest != end) return std::nullopt;
  return place;
}

ExitCode serve(Metrics& metrics, const Invocation& invocation) {
  const std::string where = invocation.text("listen");
  auto place = parse_place(where);
  if (!place)
    return invocation.wrong("--listen takes a port, or ADDRESS:PORT, not '" + where + "'");
  boost::asio::io_context loop(1);
  boost::asio::signal_set signals(loop, SIGINT, SIGTERM);
  signals.async_wait([&](const auto& failure, int) {
    if (!failure) loop.stop();
  });
  const auto pages = [&](std::string_view path) -> std::optional<HttpServer::Page> {
    if (path == "/metrics") return HttpServer::Page{kMetricsType, metrics.text()};
    if (path == "/") return HttpServer::Page{"text/html; charset=utf-8", kFront};
    return std::nullopt;
  };
  auto server = HttpServer::listen(loop, place->address, place->port, pages);
  // A machine without version 6 has no "::", which stands for every address of both versions.
  if (!server && place->address == "::" &&
      server.error().code == std::errc::address_family_not_supported)
    server = HttpServer::listen(loop, "0.0.0.0", place->port, pages);
  if (!server) return fail(server.error());
  fmt::print("gpushare-exporter: metrics at port {}\n", (*server)->port());
  std::fflush(stdout);
  loop.run();
  return kExitOk;
}

ExitCode write(Metrics& metrics, const Invocation& invocation) {
  const std::string path = invocation.text("textfile");
  const bool repeats = invocation.has("interval");
  Wait wait = Wait::until_interrupted();
  for (Time next = MonotonicClock().now();;) {
    if (const auto written = write_whole_file(path, metrics.text()); !written) {
      if (!repeats) return fail(written.error());
      fail(written.error());  // the disk may have room again
    }
    if (!repeats) return kExitOk;
    next += invocation.seconds("interval");
    if (!wait.until(next)) return kExitOk;
  }
}

ExitCode run(const Invocation& invocation) {
  if (invocation.has("interval") && !invocation.has("textfile"))
    return invocation.wrong("--interval takes --textfile with it");
  Metrics metrics(endpoints_of(invocation), invocation.text("pods"));
  return invocation.has("textfile") ? write(metrics, invocation) : serve(metrics, invocation);
}

Command program() {
  Command program{
      .name = "gpushare-exporter",
      .summary = "metrics of who shares the GPUs, for Prometheus.",
      .details =
          "It reads the control plane, which every user may, and asks the agent nothing. While no "
          "agent runs it serves gpushare_up 0.",
      .options = {{"listen", 'l', "PLACE",
                   "Where to serve /metrics: a port, of all addresses, or ADDRESS:PORT; port 0 is "
                   "a free one",
                   "9835"},
                  {"textfile", 't', "PATH",
                   "Write the metrics to this file and exit; - is standard output"},
                  {.name = "interval",
                   .letter = 'i',
                   .value = "SECONDS",
                   .help = "With --textfile: write again and again",
                   .range = Range{0.1, 3600}},
                  {"pods", 0, "FILE",
                   "What gpushare-device-plugin has written of the names of pods; not needed",
                   fmt::format("/run/gpushare/{}", kPodNamesFile)}},
      .examples = {"gpushare-exporter", "gpushare-exporter --listen 127.0.0.1:9835",
                   "gpushare-exporter --textfile /var/lib/prometheus/node-exporter/gpushare.prom"},
      .run = run,
  };
  for (Option& option : endpoint_options())
    if (option.name == "region") program.options.push_back(std::move(option));
  return program;
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) {
  // The text of a scrape goes back to the system with the scrape. Left to itself, the C library
  // comes to keep it, and may put the next one beside it.
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
  return gpushare::run_program(gpushare::program(), argc, argv);
}
