// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/status_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace gpushare {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kMpsStates{"off", "missing", "starting", "running",
                                                     "other"};
constexpr std::array<std::string_view, 3> kPriorities{"idle", "normal", "high"};
constexpr std::array<std::string_view, 7> kStates{
    "idle", "running", "waiting", "frozen-cap", "frozen-turn", "frozen-user", "observe-only"};
constexpr std::array<std::string_view, 9> kSloStates{
    "none", "rest", "unmeasured", "meets", "grows", "shrinks", "starved", "at-most", "sampling"};
constexpr std::array<std::string_view, 3> kSources{"none", "recognised", "announced"};
constexpr std::array<std::string_view, 3> kSharings{"time", "spatial", "slo"};
constexpr std::array<std::string_view, 7> kFollows{
    "unknown", "follows", "waits-for-rest", "pauses", "own-contexts", "no-room", "refused"};
constexpr uint16_t kUnknownSample = 0xFFFF;

template <size_t N>
std::string_view name_of(const std::array<std::string_view, N>& names, uint32_t value) {
  return value < N ? names[value] : "unknown";
}

template <size_t N>
uint32_t value_of(const std::array<std::string_view, N>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) throw std::runtime_error("unknown name '" + name + "'");
  return static_cast<uint32_t>(found - names.begin());
}

// The two ways over the same list of members (fields() below).
class Writer {
 public:
  template <class T>
  void number(const char* name, T& value) {
    json[name] = value;
  }
  void flag(const char* name, uint32_t& value) { json[name] = value != 0; }
  template <class T>
  void maybe(const char* name, T& value) {
    json[name] = value == static_cast<T>(-1) ? Json() : Json(value);
  }
  void percent(const char* name, uint32_t& permille) {
    json[name] = permille == kUnknown32 ? Json() : Json(permille / 10.0);
  }
  void thousandths(const char* name, uint32_t& value) {
    json[name] = value == kUnknown32 ? Json() : Json(value / 1000.0);
  }
  template <size_t N>
  void text(const char* name, char (&value)[N]) {
    json[name] = std::string(value, strnlen(value, N));
  }
  template <class E, size_t N>
  void named(const char* name, E& value, const std::array<std::string_view, N>& names) {
    json[name] = name_of(names, static_cast<uint32_t>(value));
  }
  template <size_t N>
  void history(const char* name, uint16_t (&samples)[N]) {
    Json& list = json[name] = Json::array();
    for (uint16_t sample : samples)
      list.push_back(sample == kUnknownSample ? Json() : Json(sample / 10.0));
  }

  Json json = Json::object();
};

class Reader {
 public:
  explicit Reader(const Json& from) : json(from) {
    if (!from.is_object()) throw std::runtime_error("an object was expected");
  }

  template <class T>
  void number(const char* name, T& value) {
    if (const Json* member = find(name)) value = member->get<T>();
  }
  void flag(const char* name, uint32_t& value) {
    if (const Json* member = find(name)) value = member->get<bool>() ? 1 : 0;
  }
  template <class T>
  void maybe(const char* name, T& value) {
    if (const Json* member = find(name))
      value = member->is_null() ? static_cast<T>(-1) : member->get<T>();
  }
  void percent(const char* name, uint32_t& permille) {
    if (const Json* member = find(name))
      permille = member->is_null() ? kUnknown32 : to_permille(member->get<double>());
  }
  void thousandths(const char* name, uint32_t& value) {
    const Json* member = find(name);
    if (member == nullptr) return;
    const double number = member->is_null() ? 0 : member->get<double>() * 1000;
    if (!(number >= 0 && number < kUnknown32)) throw std::runtime_error("a rate is out of range");
    value = member->is_null() ? kUnknown32 : static_cast<uint32_t>(std::llround(number));
  }
  template <size_t N>
  void text(const char* name, char (&value)[N]) {
    const Json* member = find(name);
    if (member == nullptr) return;
    const auto& bytes = member->get_ref<const std::string&>();
    std::fill(std::begin(value), std::end(value), '\0');
    std::copy_n(bytes.begin(), std::min(bytes.size(), N - 1), value);
  }
  template <class E, size_t N>
  void named(const char* name, E& value, const std::array<std::string_view, N>& names) {
    if (const Json* member = find(name))
      value = static_cast<E>(value_of(names, member->get_ref<const std::string&>()));
  }
  template <size_t N>
  void history(const char* name, uint16_t (&samples)[N]) {
    const Json* member = find(name);
    if (member == nullptr) return;
    std::fill(std::begin(samples), std::end(samples), kUnknownSample);
    // A shorter or longer list keeps its newest samples, which are the last.
    const size_t count = std::min(member->size(), N);
    for (size_t i = 0; i < count; ++i) {
      const Json& sample = member->at(member->size() - count + i);
      if (!sample.is_null())
        samples[N - count + i] = static_cast<uint16_t>(to_permille(sample.get<double>()));
    }
  }

  const Json& json;

 private:
  const Json* find(const char* name) const {
    const auto found = json.find(name);
    return found == json.end() ? nullptr : &*found;
  }
  static uint32_t to_permille(double percent) {
    if (!(percent >= 0 && percent <= 6000))
      throw std::runtime_error("a percentage is out of range");
    return static_cast<uint32_t>(std::lround(percent * 10));
  }
};

template <class A>
void fields(A& a, AgentRecord& r) {
  a.number("pid", r.agent_pid);
  a.number("supervisor_pid", r.supervisor_pid);
  a.number("started_ns", r.started_ns);
  a.number("published_ns", r.published_ns);
  a.number("ticks", r.ticks);
  a.number("tick_us", r.tick_us);
  a.number("events", r.events);
  a.number("events_dropped", r.events_dropped);
  a.number("restarts", r.restarts);
  a.number("gpu_count", r.gpu_count);
  a.flag("is_simulated", r.is_simulated);
  a.flag("can_freeze", r.can_freeze);
  a.flag("can_set_slice", r.can_set_slice);
  a.flag("has_switch_log", r.has_switch_log);
  a.flag("are_tenants_in_sysfs", r.are_tenants_in_sysfs);
  a.text("driver_version", r.driver_version);
  a.text("policy", r.policy);
  a.number("mps_pid", r.mps_pid);
  a.named("mps_state", r.mps_state, kMpsStates);
  a.number("mps_clients", r.mps_clients);
  a.number("mps_faults", r.mps_faults);
  a.text("observe_only_reason", r.observe_only_reason);
}

template <class A>
void fields(A& a, GpuRecord& r) {
  a.number("index", r.index);
  a.number("instance", r.instance);
  a.text("name", r.name);
  a.text("uuid", r.uuid);
  a.text("pci", r.pci);
  a.maybe("sm_count", r.sm_count);
  a.percent("busy_pct", r.busy_permille);
  a.named("sharing", r.sharing, kSharings);
  a.maybe("switches_per_s", r.switches_per_s);
  a.number("process_count", r.process_count);
  a.number("tenant_count", r.tenant_count);
  a.maybe("memory_bytes", r.memory_bytes);
  a.maybe("memory_used_bytes", r.memory_used_bytes);
  a.number("log_records", r.log_records);
  a.number("log_lost", r.log_lost);
}

template <class A>
void fields(A& a, TenantGpuUse& r) {
  a.percent("target_pct", r.target_permille);
  a.percent("share_pct", r.share_permille);
  a.number("gpu_time_ns", r.gpu_time_ns);
  a.maybe("sms_entitled", r.sms_entitled);
  a.maybe("sms_in_use", r.sms_in_use);
  a.maybe("sms_sharers", r.sms_sharers);
  a.maybe("sms_set", r.sms_set);
  a.named("sms_follows", r.sms_follows, kFollows);
  a.named("slo_state", r.slo_state, kSloStates);
  a.maybe("slo_us", r.slo_us);
  a.maybe("latency_us", r.latency_us);
  a.maybe("p99_us", r.p99_us);
  a.thousandths("iterations_per_s", r.iterations_per_ks);
  a.named("iteration_source", r.iteration_source, kSources);
  a.percent("confidence_pct", r.confidence_permille);
  a.maybe("sms_knee", r.sms_knee);
  a.maybe("sms_needed", r.sms_needed);
}

template <class A>
void fields(A& a, Numbered<TenantRecord>& numbered) {
  TenantRecord& r = numbered.record;
  a.number("slot", numbered.slot);
  a.text("name", r.name);
  a.number("weight", r.weight);
  a.maybe("quota_us", r.quota_us);
  a.number("period_us", r.period_us);
  a.named("priority", r.priority, kPriorities);
  a.maybe("memory_max_bytes", r.memory_max_bytes);
  a.maybe("sm_percent", r.sm_percent);
  a.number("slo_us", r.slo_us);
  a.number("process_count", r.process_count);
  a.number("memory_bytes", r.memory_bytes);
  a.flag("is_frozen_by_user", r.frozen_by_user);
  a.number("freezes", r.freezes);
  a.number("throttled_ns", r.throttled_ns);
}

template <class A>
void fields(A& a, Numbered<ProcessRecord>& numbered) {
  ProcessRecord& r = numbered.record;
  a.number("slot", numbered.slot);
  a.number("pid", r.pid);
  a.number("ns_pid", r.ns_pid);
  a.number("start_ticks", r.start_ticks);
  a.number("uid", r.uid);
  a.number("gpu", r.gpu);
  a.number("tenant_slot", r.tenant);
  a.text("command", r.command);
  a.text("command_line", r.command_line);
  a.number("cgroup_id", r.cgroup_id);
  a.named("state", r.state, kStates);
  a.number("state_since_ns", r.state_since_ns);
  a.text("note", r.note);
  a.percent("target_pct", r.target_permille);
  a.percent("share_pct", r.share_permille);
  a.maybe("slice_us", r.slice_us);
  a.flag("has_bucket", r.has_bucket);
  a.number("tokens_ns", r.tokens_ns);
  a.maybe("switches_per_s", r.switches_per_s);
  a.number("gpu_time_ns", r.gpu_time_ns);
  a.number("memory_bytes", r.memory_bytes);
  a.number("freezes", r.freezes);
  a.number("throttled_ns", r.throttled_ns);
  a.flag("is_late_attach", r.is_late_attach);
  a.history("history_pct", r.history_permille);
}

template <class Record>
Json written(Record record) {
  Writer writer;
  fields(writer, record);
  return std::move(writer.json);
}

template <class Record>
Record read(const Json& json) {
  Record record{};
  Reader reader(json);
  fields(reader, record);
  return record;
}

const Json& list(const Json& json, const char* name) {
  const Json& member = json.at(name);
  if (!member.is_array()) throw std::runtime_error(std::string(name) + " is not a list");
  return member;
}

Json tenant_json(const Numbered<TenantRecord>& tenant, const std::vector<GpuRecord>& gpus) {
  Json json = written(tenant);
  Json& uses = json["gpus"] = Json::array();
  for (const GpuRecord& gpu : gpus) {
    if (gpu.index >= kMaxGpus) continue;
    Json& use = uses.emplace_back(Json{{"gpu", gpu.index}});
    use.update(written(tenant.record.gpu[gpu.index]));
  }
  return json;
}

Numbered<TenantRecord> read_tenant(const Json& json) {
  auto tenant = read<Numbered<TenantRecord>>(json);
  for (const Json& use : list(json, "gpus")) {
    const auto gpu = use.at("gpu").get<uint32_t>();
    if (gpu >= kMaxGpus) throw std::runtime_error("a GPU's number is out of range");
    tenant.record.gpu[gpu] = read<TenantGpuUse>(use);
  }
  return tenant;
}

}  // namespace

std::string_view priority_text(Priority priority) {
  return name_of(kPriorities, static_cast<uint32_t>(priority));
}

std::string_view state_text(ProcessState state) {
  return name_of(kStates, static_cast<uint32_t>(state));
}

std::string_view slo_state_text(SloState state) {
  return name_of(kSloStates, static_cast<uint32_t>(state));
}

std::string_view sharing_text(GpuSharing sharing) {
  return name_of(kSharings, static_cast<uint32_t>(sharing));
}

std::string_view iteration_source_text(uint32_t source) { return name_of(kSources, source); }

std::string status_json(const PlaneSnapshot& snapshot) {
  Json json{{"agent", written(snapshot.agent)},
            {"gpus", Json::array()},
            {"tenants", Json::array()},
            {"processes", Json::array()}};
  for (const GpuRecord& gpu : snapshot.gpus) json["gpus"].push_back(written(gpu));
  for (const auto& tenant : snapshot.tenants)
    json["tenants"].push_back(tenant_json(tenant, snapshot.gpus));
  for (const auto& process : snapshot.processes) {
    Json& item = json["processes"].emplace_back(written(process));
    for (const auto& tenant : snapshot.tenants)
      if (tenant.slot == process.record.tenant) item["tenant"] = tenant.record.name;
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<PlaneSnapshot> parse_status_json(std::string_view text) try {
  const Json json = Json::parse(text);
  PlaneSnapshot snapshot;
  snapshot.is_consistent = true;
  snapshot.agent = read<AgentRecord>(json.at("agent"));
  for (const Json& gpu : list(json, "gpus")) snapshot.gpus.push_back(read<GpuRecord>(gpu));
  for (const Json& tenant : list(json, "tenants")) snapshot.tenants.push_back(read_tenant(tenant));
  for (const Json& process : list(json, "processes"))
    snapshot.processes.push_back(read<Numbered<ProcessRecord>>(process));
  return snapshot;
} catch (const std::exception& error) {
  return make_error(std::errc::invalid_argument, "read status", error.what());
}

}  // namespace gpushare
