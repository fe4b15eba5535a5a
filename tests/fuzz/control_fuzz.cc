// SPDX-License-Identifier: Apache-2.0
// Makes hostile requests on the control socket. Any line from any user must get exactly one answer,
// which is a JSON object on one line, and only an administrator may change anything.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "sched/control/handler.h"
#include "tests/sched/support/fake_proc_reader.h"

namespace {

using namespace gpushare;

void require(bool holds) {
  if (!holds) std::abort();
}

ControlPlane& plane() {
  static ControlPlane instance = [] {
    const std::string name = "/gpushare-fuzz-" + std::to_string(::getpid());
    auto made = ControlPlane::create(name);
    require(made.has_value());
    (void)ControlPlane::remove(name);  // the mapping stays
    return std::move(*made);
  }();
  return instance;
}

}  // namespace

// The first byte chooses the user; the rest are lines, which one agent is asked one after the
// other.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Peer peer{.pid = 1 + data[0] % 4, .uid = data[0], .is_admin = data[0] % 2 == 0};
  Tenants tenants;
  test::FakeProcReader processes;
  const ManualClock clock;
  DirectControl control(tenants);
  const ControlScope scope{.tenants = tenants,
                           .control = control,
                           .scheduler = nullptr,
                           .plane = plane(),
                           .processes = processes,
                           .clock = clock,
                           .reload = [] { return Result<>(); },
                           .forget = [&] { return control.forget({}); },
                           .diagnose = [] { return std::vector<Finding>(); }};
  std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const uint64_t before = tenants.generation();
    Answer answer = handle_request(line, peer, scope);
    if (answer.later) answer.line = answer.later();
    require(answer.line.find('\n') == std::string::npos);
    const auto json = nlohmann::json::parse(answer.line, nullptr, false);
    require(json.is_object() && json.contains("ok"));
    if (!peer.is_admin) require(tenants.generation() == before && !answer.trace);
  }
  return 0;
}
