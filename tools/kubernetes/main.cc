// SPDX-License-Identifier: Apache-2.0
// gpushare-device-plugin: shares of GPUs as resources of Kubernetes, on each node.
// docs/kubernetes.md is for users.
#include <curl/curl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "shmctl/program/wait.h"
#include "shmctl/settings/tenant_settings.h"
#include "tools/base/endpoints.h"
#include "tools/kubernetes/plugin.h"

namespace gpushare {
namespace {

constexpr const char* kAccount = "/var/run/secrets/kubernetes.io/serviceaccount";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// In a pod, where the service account says how to reach it.
std::string usual_api_server() {
  const std::string host = variable("KUBERNETES_SERVICE_HOST");
  const bool is_v6 = host.find(':') != std::string::npos;
  if (host.empty()) return "";
  return fmt::format("https://{}:{}", is_v6 ? "[" + host + "]" : host,
                     variable("KUBERNETES_SERVICE_PORT"));
}

std::optional<uint64_t> bytes_of(const Invocation& invocation, const char* option) {
  if (invocation.text(option).empty()) return 0;
  TenantSettings scratch;
  if (!apply_setting(scratch, "memory_max", invocation.text(option))) return std::nullopt;
  return scratch.memory_max;
}

// VENDOR/CLASS, of letters, digits and what may stand between them.
bool is_cdi_kind(const std::string& kind) {
  const auto is_part = [](std::string_view part) {
    return !part.empty() && std::ranges::all_of(part, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
    });
  };
  const size_t slash = kind.find('/');
  return slash != std::string::npos && is_part(std::string_view(kind).substr(0, slash)) &&
         is_part(std::string_view(kind).substr(slash + 1));
}

ExitCode run(const Invocation& invocation) {
  PluginOptions options;
  options.endpoints = endpoints_of(invocation);
  options.api_server = {.url = invocation.value("api-server").value_or(usual_api_server()),
                        .token_file = invocation.text("token-file"),
                        .ca_file = invocation.text("ca-file"),
                        .node = invocation.text("node")};
  if (options.api_server.node.empty())
    return invocation.wrong(
        "--node, or NODE_NAME in the environment, is this node's name at the API server");
  if (options.api_server.url.empty())
    return invocation.wrong(
        "--api-server says where the API server is; in a pod the environment does");
  options.rules.shares = static_cast<uint32_t>(invocation.whole("shares"));
  options.rules.weight = static_cast<uint32_t>(invocation.whole("weight"));
  options.rules.max_share = invocation.number("max-share");
  options.rules.is_hard = invocation.has("hard");
  options.rules.may_be_high = invocation.has("allow-high");
  options.rules.below = invocation.text("below");
  Pod example;
  example.name_space = example.name = "n";
  example.object_uid = "00000000";
  const std::string above = tenant_above(example, options.rules.below);
  if (above.size() > kLongestAbove || !check_tenant_name(tenant_name(example, above)))
    return invocation.wrong(
        "--below is a tenant's name of at most 40 characters and three parts, in which %n is the "
        "namespace");
  const auto unit = bytes_of(invocation, "memory-unit");
  const auto per_share = bytes_of(invocation, "memory-per-share");
  constexpr uint64_t kLeastUnit = 16 << 20;
  if (!unit || *unit < kLeastUnit || !per_share)
    return invocation.wrong(
        "--memory-unit and --memory-per-share are sizes such as 256M, the unit at least 16M");
  options.rules.memory_unit = *unit;
  options.rules.memory_per_share = *per_share;
  const auto driver = parse_cgroup_driver(invocation.text("cgroup-driver"));
  if (!driver) return invocation.wrong("--cgroup-driver is auto, systemd or cgroupfs");
  options.driver = *driver;
  options.cgroup_root = invocation.text("cgroup-root");
  options.kubelet = invocation.text("kubelet");
  options.library = invocation.text("library");
  options.is_shim_preloaded = invocation.has("shim");
  options.passes_devices = invocation.has("pass-devices");
  options.is_agent_required = invocation.has("require-agent");
  options.cdi_kind = invocation.text("cdi");
  if (!options.cdi_kind.empty() && !is_cdi_kind(options.cdi_kind))
    return invocation.wrong("--cdi is a kind of CDI devices, such as nvidia.com/gpu");
  if (::access(options.api_server.token_file.c_str(), R_OK) != 0)
    options.api_server.token_file.clear();
  if (::access(options.api_server.ca_file.c_str(), R_OK) != 0) options.api_server.ca_file.clear();
  curl_global_init(CURL_GLOBAL_DEFAULT);
  Wait wait = Wait::until_interrupted();
  Plugin(std::move(options)).run(wait);
  return kExitOk;
}

Command program() {
  return with_endpoints({
      .name = "gpushare-device-plugin",
      .summary = "shares of GPUs as resources of Kubernetes.",
      .details =
          "It runs on each node with GPUs, as root, beside the agent. Pods ask for "
          "gpushare.io/share and gpushare.io/memory, and each pod is a tenant whose weight is what "
          "its shares make, known by its cgroup.",
      .options = {{.name = "node",
                   .value = "NAME",
                   .help = "This node's name at the API server",
                   .variable = "NODE_NAME"},
                  number_option("shares", "N", "Shares of one GPU", {1, 1000, true}, "100"),
                  number_option("weight", "N",
                                "Weight of a pod that has a whole GPU; one with half "
                                "of the shares has half of it",
                                {1, 10'000, true}, "1000"),
                  {"memory-unit", 0, "SIZE", "What one gpushare.io/memory is", "1G"},
                  {"memory-per-share", 0, "SIZE",
                   "Memory that goes with a share of a pod that asks for no memory"},
                  number_option("max-share", "N",
                                "Shares up to which a pod's annotation may raise what it asked; 0: "
                                "it may only lower that",
                                {0, 1000, false}, "0"),
                  {"below", 0, "TENANT",
                   "The tenant below which those of pods are, %n in it being the namespace; where "
                   "there is none a pod's is at the top"},
                  {"hard", 0, "", "No pod gets more than its shares, even while a GPU is free"},
                  {"allow-high", 0, "", "Pods may have the priority high, by annotation"},
                  {.name = "cgroup-driver",
                   .value = "DRIVER",
                   .help = "The kubelet's: systemd, cgroupfs, or auto for either",
                   .otherwise = "auto",
                   .words = "auto systemd cgroupfs"},
                  {"cgroup-root", 0, "CGROUP", "The kubelet's --cgroup-root", "/"},
                  {"kubelet", 0, "DIR", "The kubelet's folder", "/var/lib/kubelet"},
                  {"api-server", 0, "URL", "The API server; in a pod its own is known"},
                  {"token-file", 0, "FILE", "The token for the API server",
                   fmt::format("{}/token", kAccount)},
                  {"ca-file", 0, "FILE", "Who vouches for the API server",
                   fmt::format("{}/ca.crt", kAccount)},
                  {"library", 0, "FILE", "The shim, which containers get if it is there",
                   "/usr/lib/gpushare/libgpushare.so"},
                  {"shim", 0, "", "Preload the shim in containers (not in those with musl)"},
                  {"pass-devices", 0, "",
                   "Give containers the GPUs' device files, where no runtime of NVIDIA's does"},
                  {"cdi", 0, "KIND",
                   "Give containers their GPUs as CDI devices of this kind, by UUID, such as "
                   "nvidia.com/gpu, in place of NVIDIA_VISIBLE_DEVICES; untried on a cluster, "
                   "for Kubernetes 1.28 and newer"},
                  {"require-agent", 0, "",
                   "A container does not start before its pod is a tenant"}},
      .examples = {"gpushare-device-plugin --node gpu-1 --shares 10"},
      .run = run,
  });
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) { return gpushare::run_program(gpushare::program(), argc, argv); }
