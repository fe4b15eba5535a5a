// SPDX-License-Identifier: Apache-2.0
#include "tools/containers/cdi_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "tools/agent/client.h"
#include "tools/agent/status_source.h"
#include "tools/base/atomic_file.h"
#include "tools/base/endpoints.h"
#include "tools/base/owned_path.h"
#include "tools/base/preload.h"
#include "tools/base/report.h"
#include "tools/containers/cdi_spec.h"

namespace gpushare {
namespace {

std::vector<std::string> tenants_of(const PlaneSnapshot& snapshot) {
  std::vector<std::string> names;
  for (const auto& [slot, tenant] : snapshot.tenants) {
    const std::string_view field(tenant.name, sizeof(tenant.name));
    names.emplace_back(field.substr(0, field.find('\0')));
  }
  return names;
}

// Runtimes start the program as root, and put the shim into containers, whoever is in them.
Result<> check_replaceable(const CdiOptions& options) {
  if (::geteuid() != 0) return {};  // what an ordinary user writes, no runtime reads
  for (const std::string& path : {options.program, options.shim})
    if (!path.empty())
      if (auto owned = check_owned_path(path); !owned) return owned;
  return {};
}

ExitCode generate(const Invocation& invocation) {
  const Endpoints endpoints = endpoints_of(invocation);
  const auto status = StatusSource(endpoints).read();
  if (!status) return report(status.error());
  if (!status->health.is_live())
    return report({{}, "list the tenants", "the agent does not run; it knows them"});
  std::error_code code;
  CdiOptions options{.program = std::filesystem::read_symlink("/proc/self/exe", code),
                     .socket = invocation.has("socket") ? endpoints.socket : "",
                     .is_required = invocation.has("required")};
  if (invocation.has("shim")) {
    const auto library = find_shim_library();
    if (!library) return report(library.error());
    options.shim = *library;
    options.run_folder = std::filesystem::path(invocation.text("socket")).parent_path();
  }
  if (const auto owned = check_replaceable(options); !owned) return report(owned.error());
  std::vector<std::string> left_out;
  const std::string spec = cdi_spec(tenants_of(status->snapshot), options, left_out);
  for (const std::string& name : left_out)
    fmt::print(stderr,
               "gpushare: warning: {} is left out: a device's name begins and ends with a letter "
               "or a digit\n",
               name);
  const std::string path = invocation.text("output");
  if (path != "-")
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), code);
  const auto written = write_whole_file(path, spec);
  return written ? kExitOk : report(written.error());
}

// The runtime ends a container whose hook fails. That is for who wants it (--required): otherwise a
// container runs without its tenant, as on a machine without gpushare, and a line says so.
ExitCode hook(const Invocation& invocation) {
  const auto tenant = invocation.value("tenant");
  if (!tenant) return invocation.wrong("hook takes --tenant with it");
  const std::string state{std::istreambuf_iterator<char>(std::cin), {}};
  const auto pid = container_pid(state);
  Result<> done = pid ? tell_agent(endpoints_of(invocation).socket,
                                   {.op = "attach", .pid = *pid, .tenant = *tenant})
                      : std::unexpected(pid.error());
  if (done) return kExitOk;
  if (invocation.has("required")) return report(done.error());
  fmt::print(stderr, "gpushare: warning: the container is not in the tenant {}: {}\n", *tenant,
             done.error().message());
  return kExitOk;
}

ExitCode cdi(const Invocation& invocation) {
  return invocation.arguments[0] == "generate" ? generate(invocation) : hook(invocation);
}

}  // namespace

Command cdi_command() {
  return {
      .name = "cdi",
      .summary = "Make tenants devices of containers (podman, containerd, CRI-O, Docker).",
      .arguments = "generate|hook",
      .details =
          "'generate' writes a file for the Container Device Interface, with a device for each "
          "tenant that there is now; run it again when there are others. A container with the "
          "device gpushare.io/tenant=NAME is in that tenant from its first process on. 'hook' is "
          "what the runtime starts then; it reads the container's state from standard input.",
      .options = {{"output", 'o', "FILE", "Where to write; - is standard output",
                   "/etc/cdi/gpushare.json"},
                  {"shim", 0, "", "Preload libgpushare.so into the containers' programs"},
                  {"required", 0, "",
                   "A container does not start when it cannot be put into its tenant"},
                  {"tenant", 't', "TENANT", "With hook: the tenant of the container"}},
      .examples = {"gpushare cdi generate",
                   "podman run --device gpushare.io/tenant=research IMAGE"},
      .run = cdi};
}

}  // namespace gpushare
