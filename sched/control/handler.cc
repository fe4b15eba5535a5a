// SPDX-License-Identifier: Apache-2.0
#include "sched/control/handler.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "sched/control/placing.h"
#include "sched/policy/command_signature.h"
#include "shmctl/base/version.h"
#include "shmctl/plane/snapshot.h"
#include "shmctl/plane/status_json.h"

namespace gpushare {
namespace {

using Json = nlohmann::json;

constexpr double kLongestTrace = 3600;

// A request that is refused. Thrown and caught in this file only.
struct Refusal {
  const char* code;  // "usage", "denied", "busy", "failed"
  std::string error;
  std::string allowed;
};

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string refusal_line(const Refusal& refusal) {
  Json json{{"ok", false}, {"error", refusal.error}, {"code", refusal.code}};
  if (!refusal.allowed.empty()) json["allowed"] = refusal.allowed;
  return dump(json);
}

[[noreturn]] void refuse(const Error& error) {
  const bool is_usage = error.code == std::errc::invalid_argument ||
                        error.code == std::errc::no_such_file_or_directory ||
                        error.code == std::errc::no_such_process;
  // The detail of an error in the input says all that the user needs; the step would only blur it.
  throw Refusal{is_usage ? "usage" : "failed",
                is_usage && !error.detail.empty() ? error.detail : error.message(), ""};
}

template <class T>
T value_or_refuse(Result<T> result) {
  if (!result) refuse(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

class Handler {
 public:
  Handler(const Peer& peer, const ControlScope& scope) : peer_(peer), scope_(scope) {}

  Answer answer(std::string_view text) {
    request_ = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!request_.is_object()) throw Refusal{"usage", "a request is one JSON object a line", ""};
    const std::string op = string("op");
    const auto known =
        std::ranges::find_if(kOperations, [&](const Operation& o) { return op == o.name; });
    if (known == kOperations.end()) {
      std::string names;
      for (const Operation& operation : kOperations)
        names += (names.empty() ? "" : ", ") + std::string(operation.name);
      throw Refusal{"usage", fmt::format("unknown op '{}'", op), names};
    }
    if (known->is_admin_only) require_admin();
    (this->*known->run)();
    if (!answer_.later) {
      body_["ok"] = true;
      answer_.line = dump(body_);
    }
    return std::move(answer_);
  }

 private:
  struct Operation {
    std::string_view name;
    bool is_admin_only;
    void (Handler::*run)();
  };
  static const std::array<Operation, 14> kOperations;

  void require_admin() const {
    if (!peer_.is_admin)
      throw Refusal{"denied", "this takes root or membership of the group gpushare",
                    "hello, status, use, doctor, and place and run without tenant or settings"};
  }

  const Json& member(const char* key) const {
    const auto at = request_.find(key);
    if (at == request_.end()) throw Refusal{"usage", fmt::format("'{}' is missing", key), ""};
    return *at;
  }
  std::string string(const char* key) const {
    const Json& value = member(key);
    if (!value.is_string()) throw Refusal{"usage", fmt::format("'{}' is a string", key), ""};
    return value.get<std::string>();
  }
  pid_t pid() const {
    const Json& value = member("pid");
    if (!value.is_number_integer() || value < 1 || value > std::numeric_limits<pid_t>::max())
      throw Refusal{"usage", "'pid' is a process number", ""};
    return value.get<pid_t>();
  }
  std::vector<Setting> settings() const {
    const auto at = request_.find("settings");
    std::vector<Setting> list;
    if (at == request_.end()) return list;
    if (!at->is_object())
      throw Refusal{"usage", "'settings' is an object", R"({"weight":"300","max":"30%"})"};
    for (const auto& [key, value] : at->items()) {
      if (!value.is_string())
        throw Refusal{"usage", fmt::format("the value of '{}' is a string", key), ""};
      list.push_back({key, value.get<std::string>()});
    }
    return list;
  }
  ProcessId living(pid_t pid) const {
    const auto link = scope_.processes.link(pid);
    if (!link) throw Refusal{"usage", fmt::format("there is no process {}", pid), ""};
    return link->id;
  }
  // Who asks a while after it has seen the process says which one it means: the number may be
  // another's by now.
  ProcessId named() const {
    const ProcessId process = living(pid());
    const auto at = request_.find("start_ticks");
    if (at == request_.end()) return process;
    if (!at->is_number_unsigned())
      throw Refusal{"usage", "'start_ticks' is the time of a process's start", ""};
    if (*at != process.start_ticks)
      throw Refusal{"usage", fmt::format("the process {} that was meant has ended", process.pid),
                    ""};
    return process;
  }

  void hello() {
    body_["version"] = kVersion;
    body_["commit"] = kCommit;
    body_["pid"] = ::getpid();
    body_["region"] = scope_.plane.name();
    body_["uid"] = peer_.uid;
    body_["is_admin"] = peer_.is_admin;
  }

  void status() {
    answer_.later = [&plane = scope_.plane]() -> std::string {
      try {
        const std::string text = status_json(value_or_refuse(take_snapshot(plane)));
        return "{\"ok\":true," + text.substr(1);
      } catch (const Refusal& refused) {
        return refusal_line(refused);
      }
    };
  }

  void set() {
    const auto create = request_.find("create");
    const bool may_create = create != request_.end() && create->is_boolean() && create->get<bool>();
    value_or_refuse(scope_.control.set(string("tenant"), settings(), may_create));
    answer_.has_changed = true;
  }

  // The answer says what the tenant used in all, as nobody can ask for that afterwards.
  void remove() {
    const std::string tenant = string("tenant");
    const TenantUse use = use_of(tenant);
    value_or_refuse(scope_.control.remove(tenant));
    say_use(use);
    answer_.has_changed = true;
  }
  // The same while it is there, with what binds it.
  void use() {
    const std::string tenant = string("tenant");
    const auto slot = scope_.tenants.find(tenant);
    if (!slot) throw Refusal{"usage", fmt::format("there is no tenant '{}'", tenant), ""};
    say_use(use_of(tenant));
    Json& settings = body_["settings"] = Json::object();
    for (const Setting& setting : format_settings(scope_.tenants.at(*slot)->settings))
      settings[setting.key] = setting.value;
  }
  void say_use(const TenantUse& use) {
    Nanos used{};
    for (size_t gpu = 0; gpu < use.used.size(); ++gpu)
      used += use.used[gpu] + std::max(use.presumed[gpu], Nanos{});
    body_["gpu_time_ns"] = used.count();
    body_["throttled_ns"] = use.throttled.count();
  }
  TenantUse use_of(const std::string& tenant) const {
    const auto slot = scope_.tenants.find(tenant);
    if (!slot) return {};
    const auto of = [&](const std::map<uint32_t, TenantUse>& uses) {
      const auto found = uses.find(*slot);
      return found == uses.end() ? TenantUse{} : found->second;
    };
    // While there is no GPU what was published last counts: it goes on when there is one.
    return scope_.scheduler != nullptr ? of(scope_.scheduler->state().tenant_use)
                                       : of(published_use(scope_.plane.region(), scope_.tenants));
  }

  void attach() {
    if (request_.contains("cgroup"))
      value_or_refuse(scope_.tenants.attach_scope(string("cgroup"), string("tenant")));
    else
      value_or_refuse(scope_.control.attach(named(), string("tenant")));
    answer_.has_changed = true;
  }

  void freeze() { set_frozen(true); }
  void thaw() { set_frozen(false); }
  void set_frozen(bool is_frozen) {
    if (request_.contains("tenant")) {
      if (!is_frozen) refuse_where_it_stays_frozen(string("tenant"));
      value_or_refuse(scope_.control.set_frozen(string("tenant"), is_frozen));
    } else if (request_.contains("pid")) {
      const ProcessId process = named();
      value_or_refuse(scope_.tenants.set_frozen(process, is_frozen));
      body_["on_gpu"] = is_on_gpu(process);
    } else {
      throw Refusal{"usage", "name a 'pid' or a 'tenant'", ""};
    }
    answer_.has_changed = true;
  }
  void refuse_where_it_stays_frozen(const std::string& name) const {
    const auto slot = scope_.tenants.find(name);
    const Tenant* const above = slot ? scope_.tenants.frozen_with(*slot) : nullptr;
    if (above == nullptr || above->name == name) return;
    throw Refusal{"failed",
                  fmt::format("'{}' is frozen with '{}' above it: thaw that one (gpushare thaw {})",
                              name, above->name, above->name),
                  ""};
  }
  bool is_on_gpu(const ProcessId& process) const {
    if (scope_.scheduler == nullptr) return false;
    const Process* known = scope_.scheduler->state().registry.find(process.pid);
    return known != nullptr && known->id == process && !known->holders.empty();
  }

  // A caller that asks for neither tenant nor settings is placed by the rules, which an attachment
  // to `default` would overrule. For the same reason an ordinary user is never attached.
  void run() {
    const std::vector<Setting> wanted = settings();
    const bool has_tenant = request_.contains("tenant");
    std::string tenant = has_tenant ? string("tenant") : std::string(kDefaultTenantName);
    if (!wanted.empty() || tenant != kDefaultTenantName) require_admin();

    const ProcessId caller = living(peer_.pid);
    std::optional<std::string> scope;
    if (const auto at = request_.find("scope"); at != request_.end() && *at == true)
      scope = scope_of(caller);
    if (has_tenant && peer_.is_admin) {
      if (!wanted.empty()) value_or_refuse(scope_.control.set(tenant, wanted, /*create=*/true));
      value_or_refuse(scope_.control.attach(caller, tenant));
    } else if (!wanted.empty()) {
      tenant = value_or_refuse(scope_.control.create_transient(caller, wanted));
    }
    if (scope) value_or_refuse(scope_.tenants.attach_scope(*scope, tenant));
    body_["run"] = value_or_refuse(scope_.tenants.begin_run(caller, scope_.clock.now()));
    body_["tenant"] = tenant;
    body_["follows_forks"] = scope_.follows_forks;
    body_["orders_jobs"] = scope_.scheduler != nullptr && scope_.scheduler->turns().has_orders();
    answer_.has_changed = true;
  }

  // Where a program that will be started should run. The caller becomes that program.
  void place() {
    const LengthHistory nothing;
    const LengthHistory& lengths = scope_.lengths == nullptr ? nothing : *scope_.lengths;
    const std::vector<Setting> asked = settings();
    if (!asked.empty()) require_admin();  // as `run` does afterwards
    TenantSettings said;
    value_or_refuse(apply_settings(said, asked));
    std::optional<Nanos> length;
    if (said.length > Micros{}) length = said.length;
    if (!length && request_.contains("command")) length = lengths.median(command());
    const PlaceJob job{
        .length = length ? static_cast<double>(length->count()) : lengths.mix().index({}),
        .bytes = said.memory_max.value_or(0)};
    const PlaneSnapshot plane = value_or_refuse(take_snapshot(scope_.plane));
    const auto caller = scope_.processes.link(peer_.pid);
    const std::string wanted = string("gpu");
    std::vector<PlaceGpu> gpus = place_gpus(plane, lengths.mix());
    const std::optional<uint32_t> only = gpu_of(wanted, gpus);
    if (gpus.empty() || (!only && wanted != "auto")) return wait_for_a_gpu(wanted, gpus, caller);
    if (scope_.placements != nullptr) {
      if (caller) scope_.placements->forget(caller->id);
      scope_.placements->add_to(gpus, scope_.clock.now(), bytes_there(plane),
                                [&](const ProcessId& process) { return is_gone(process); });
    }
    std::vector<PlaceWaiting> before;
    if (scope_.waiting != nullptr)
      before = scope_.waiting->before(caller ? caller->id : ProcessId{}, scope_.clock.now());
    const Placement placement = place_after(before, job, std::move(gpus), only);
    if (placement.is_impossible) throw Refusal{"failed", placement.reason, ""};
    body_["reason"] = !only || placement.gpus.empty() ? placement.reason : "asked for";
    if (placement.gpus.empty()) {
      const bool has_place =
          scope_.waiting != nullptr && caller &&
          scope_.waiting->note({.process = caller->id,
                                .uid = peer_.uid,
                                .bytes = job.bytes,
                                .length = length,
                                .gpu = only,
                                .command = scope_.processes.hides_others() ? "" : command_line(),
                                .why = placement.reason},
                               scope_.clock.now());
      // The others cannot be next, and may be thousands.
      body_["ask_again_s"] = has_place ? 1 : 10;
      return;
    }
    if (scope_.waiting != nullptr && caller) scope_.waiting->forget(caller->id);
    body_["gpu"] = placement.gpus.front();
    const auto record = std::ranges::find(plane.gpus, placement.gpus.front(), &GpuRecord::index);
    body_["uuid"] = record->uuid;
    if (scope_.placements != nullptr && caller)
      scope_.placements->note({.process = caller->id,
                               .gpu = placement.gpus.front(),
                               .length = job.length,
                               .bytes = job.bytes,
                               .since = scope_.clock.now(),
                               .uid = peer_.uid});
  }
  // One that has waited before goes on to, as its GPU may be about to be opened anew.
  void wait_for_a_gpu(const std::string& wanted, const std::vector<PlaceGpu>& gpus,
                      const std::optional<ProcReader::Link>& caller) {
    const char* const why = gpus.empty() ? "there is no GPU now" : "its GPU is not there now";
    if (scope_.waiting != nullptr && caller &&
        scope_.waiting->go_on(caller->id, why, scope_.clock.now())) {
      body_["reason"] = why;
      return;
    }
    if (gpus.empty()) throw Refusal{"failed", "there is no GPU", ""};
    std::string known;
    for (const PlaceGpu& gpu : gpus) known += fmt::format(", {}", gpu.index);
    throw Refusal{"usage", fmt::format("there is no GPU '{}'", wanted), "auto" + known};
  }
  // None: "auto", or what names no GPU.
  static std::optional<uint32_t> gpu_of(const std::string& wanted,
                                        const std::vector<PlaceGpu>& gpus) {
    const auto found = std::ranges::find(
        gpus, wanted, [](const PlaceGpu& gpu) { return std::to_string(gpu.index); });
    return found == gpus.end() ? std::nullopt : std::optional(found->index);
  }
  // What those that were placed have there, with what they have started.
  Placements::BytesThere bytes_there(const PlaneSnapshot& plane) const {
    std::map<std::pair<uint32_t, ProcessId>, uint64_t> of_processes;  // by GPU
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> of_runs;
    for (const auto& [slot, record] : plane.processes) {
      of_processes[{record.gpu, {record.pid, record.start_ticks}}] += record.memory_bytes;
      if (record.run != 0) of_runs[{record.gpu, record.run}] += record.memory_bytes;
    }
    return [this, of_processes = std::move(of_processes), of_runs = std::move(of_runs)](
               const Placements::Placed& placed) -> std::optional<uint64_t> {
      const uint32_t run = scope_.tenants.run_of(placed.process).number;
      if (const auto found = of_runs.find({placed.gpu, run}); run != 0 && found != of_runs.end())
        return found->second;
      const auto found = of_processes.find({placed.gpu, placed.process});
      return found == of_processes.end() ? std::nullopt : std::optional(found->second);
    };
  }
  bool is_gone(const ProcessId& process) const {
    const auto link = scope_.processes.link(process.pid);
    return link ? link->id != process : !scope_.processes.is_taken(process.pid);
  }
  std::string command() const { return command_signature(command_line(), peer_.uid); }
  // Empty: the request names no command.
  std::string command_line() const {
    if (!request_.contains("command")) return {};
    const Json& words = member("command");
    std::string line;
    if (!words.is_array()) throw Refusal{"usage", "'command' is a list of strings", ""};
    for (const Json& word : words) {
      if (!word.is_string()) throw Refusal{"usage", "'command' is a list of strings", ""};
      line += word.get<std::string>() + ' ';
    }
    return line;
  }

  // The cgroup that the caller has put itself into, by the kernel's word.
  std::string scope_of(const ProcessId& caller) const {
    require_admin();
    const auto details = scope_.processes.details(caller.pid);
    if (!details || details->id != caller || !details->cgroup.ends_with(".scope"))
      throw Refusal{"usage", "the caller is in no scope of its own", "a cgroup NAME.scope"};
    return details->cgroup;
  }

  void trace() {
    const Json& seconds = member("seconds");
    if (!seconds.is_number() || !(seconds.get<double>() > 0) ||
        seconds.get<double>() > kLongestTrace)
      throw Refusal{"usage", "'seconds' is a number", fmt::format("above 0, to {}", kLongestTrace)};
    if (scope_.scheduler == nullptr) throw Refusal{"failed", "there is no GPU", ""};
    answer_.trace =
        std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(seconds.get<double>()));
    body_["start_ns"] = scope_.clock.now().time_since_epoch().count();
  }

  void doctor() {
    Json list = Json::array();
    for (const Finding& finding : scope_.diagnose()) {
      list.push_back({{"check", finding.check},
                      {"state", severity_name(finding.severity)},
                      {"detail", finding.detail},
                      {"fix", finding.fix}});
    }
    body_["checks"] = std::move(list);
  }

  void reload() {
    value_or_refuse(scope_.reload());
    answer_.has_changed = true;
  }

  void forget() {
    value_or_refuse(scope_.forget());
    answer_.has_changed = true;
  }

  const Peer& peer_;
  const ControlScope& scope_;
  Json request_;
  Json body_ = Json::object();
  Answer answer_;
};

const std::array<Handler::Operation, 14> Handler::kOperations{{
    {"hello", false, &Handler::hello},
    {"status", false, &Handler::status},
    {"use", false, &Handler::use},
    {"doctor", false, &Handler::doctor},
    {"run", false, &Handler::run},
    {"place", false, &Handler::place},
    {"set", true, &Handler::set},
    {"remove", true, &Handler::remove},
    {"attach", true, &Handler::attach},
    {"freeze", true, &Handler::freeze},
    {"thaw", true, &Handler::thaw},
    {"trace", true, &Handler::trace},
    {"reload", true, &Handler::reload},
    {"forget", true, &Handler::forget},
}};

}  // namespace

Answer handle_request(std::string_view request, const Peer& peer, const ControlScope& scope) {
  try {
    return Handler(peer, scope).answer(request);
  } catch (const Refusal& refused) {
    return {.line = refusal_line(refused)};
  } catch (const Json::exception& error) {
    return {.line = refusal_line({"usage", error.what(), ""})};
  }
}

std::string refusal_line(std::string_view error, const char* code) {
  return refusal_line({code, std::string(error), ""});
}

}  // namespace gpushare
