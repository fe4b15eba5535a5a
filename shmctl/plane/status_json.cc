// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/status_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "kmod/uapi/settings.h"

namespace gpushare {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kMpsStates{"off", "missing", "starting", "running",
                                                     "other"};
constexpr std::array<std::string_view, 3> kPriorities = GPUSHARE_PRIORITY_NAMES;
constexpr std::array<std::string_view, 5> kEndings{"none", "stopped", "handed-over", "exited",
                                                   "signalled"};
constexpr std::array<std::string_view, 7> kStates{
    "idle", "running", "waiting", "frozen-cap", "frozen-turn", "frozen-user", "observe-only"};
constexpr std::array<std::string_view, 12> kSloStates{
    "none",    "rest",    "unmeasured", "meets",  "grows", "shrinks",
    "starved", "at-most", "sampling",   "yields", "held",  "even"};
constexpr std::array<std::string_view, 4> kTenantPhases = GPUSHARE_PHASE_NAMES;
constexpr std::array<std::string_view, 3> kGangs = GPUSHARE_GANG_NAMES;
constexpr std::array<std::string_view, 3> kPhases{"none", "prefill", "decode"};
constexpr std::array<std::string_view, 6> kTurns{"free",    "queued",   "held",
                                                 "running", "stopping", "stopped"};
constexpr std::array<std::string_view, 4> kLeftBy{"unknown", "learnt", "said", "announced"};
constexpr std::array<std::string_view, 3> kSources{"none", "recognised", "announced"};
constexpr std::array<std::string_view, 3> kSharings{"time", "spatial", "slo"};
constexpr std::array<std::string_view, 11> kFollows{
    "unknown", "follows",          "waits-for-rest", "pauses", "own-contexts", "no-room",
    "refused", "too-many-streams", "work-remains",   "leaves", "newer-driver"};
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

// Members that are more than a number or a text. Each holds a reference to the record's own member.
struct Flag {
  uint32_t& value;
};
template <class T>
struct Maybe {  // all ones mean unknown
  T& value;
};
struct Percent {  // permille in the record
  uint32_t& value;
};
struct Thousandths {
  uint32_t& value;
};
template <class E, size_t N>
struct Named {
  E& value;
  const std::array<std::string_view, N>& names;
};

// A member as JSON.
template <class T>
Json shown(T number) {
  return number;
}
Json shown(Flag flag) { return flag.value != 0; }
template <class T>
Json shown(Maybe<T> maybe) {
  return maybe.value == static_cast<T>(-1) ? Json() : Json(maybe.value);
}
Json shown(Percent percent) {
  return percent.value == kUnknown32 ? Json() : Json(percent.value / 10.0);
}
Json shown(Thousandths rate) {
  return rate.value == kUnknown32 ? Json() : Json(rate.value / 1000.0);
}
template <size_t N>
Json shown(char (&text)[N]) {
  return std::string(text, strnlen(text, N));
}
template <class E, size_t N>
Json shown(Named<E, N> named) {
  return name_of(named.names, static_cast<uint32_t>(named.value));
}
Json shown(uint16_t (&samples)[kHistory]) {
  Json list = Json::array();
  for (uint16_t sample : samples)
    list.push_back(sample == kUnknownSample ? Json() : Json(sample / 10.0));
  return list;
}

// A member from JSON. Throws when the value has another type or is out of range.
uint32_t to_permille(double percent) {
  if (!(percent >= 0 && percent <= 6000)) throw std::runtime_error("a percentage is out of range");
  return static_cast<uint32_t>(std::lround(percent * 10));
}
template <class T>
void take(const Json& json, T& number) {
  number = json.get<T>();
}
void take(const Json& json, Flag flag) { flag.value = json.get<bool>() ? 1 : 0; }
template <class T>
void take(const Json& json, Maybe<T> maybe) {
  maybe.value = json.is_null() ? static_cast<T>(-1) : json.get<T>();
}
void take(const Json& json, Percent percent) {
  percent.value = json.is_null() ? kUnknown32 : to_permille(json.get<double>());
}
void take(const Json& json, Thousandths rate) {
  const double number = json.is_null() ? 0 : json.get<double>() * 1000;
  if (!(number >= 0 && number < kUnknown32)) throw std::runtime_error("a rate is out of range");
  rate.value = json.is_null() ? kUnknown32 : static_cast<uint32_t>(std::llround(number));
}
template <size_t N>
void take(const Json& json, char (&text)[N]) {
  const auto& bytes = json.get_ref<const std::string&>();
  std::fill(std::begin(text), std::end(text), '\0');
  std::copy_n(bytes.begin(), std::min(bytes.size(), N - 1), text);
}
template <class E, size_t N>
void take(const Json& json, Named<E, N> named) {
  named.value = static_cast<E>(value_of(named.names, json.get_ref<const std::string&>()));
}
void take(const Json& json, uint16_t (&samples)[kHistory]) {
  std::ranges::fill(samples, kUnknownSample);
  // A shorter or longer list keeps its newest samples, which are the last.
  const size_t count = std::min<size_t>(json.size(), kHistory);
  for (size_t i = 0; i < count; ++i) {
    const Json& sample = json.at(json.size() - count + i);
    if (!sample.is_null())
      samples[kHistory - count + i] = static_cast<uint16_t>(to_permille(sample.get<double>()));
  }
}

// visit(name, member) for each pair of the arguments, in order.
template <class Visit, class Member, class... Rest>
void each(const Visit& visit, const char* name, Member&& member, Rest&&... rest) {
  visit(name, member);
  if constexpr (sizeof...(rest) > 0) each(visit, rest...);
}

// The members of every record, named once for both directions, in the order of the JSON.
void fields(const auto& visit, AgentRecord& r) {
  each(visit, "pid", r.agent_pid, "supervisor_pid", r.supervisor_pid, "started_ns", r.started_ns,
       "published_ns", r.published_ns, "ticks", r.ticks, "tick_us", r.tick_us, "events", r.events,
       "events_dropped", r.events_dropped, "restarts", r.restarts, "gpu_count", r.gpu_count,
       "is_simulated", Flag{r.is_simulated}, "can_freeze", Flag{r.can_freeze}, "can_set_slice",
       Flag{r.can_set_slice}, "has_switch_log", Flag{r.has_switch_log}, "are_tenants_in_sysfs",
       Flag{r.are_tenants_in_sysfs}, "driver_version", r.driver_version, "policy", r.policy,
       "mps_pid", r.mps_pid, "mps_state", Named{r.mps_state, kMpsStates}, "mps_clients",
       r.mps_clients, "mps_faults", r.mps_faults, "observe_only_reason", r.observe_only_reason,
       "false_claims", r.false_claims, "interferences", r.interferences);
}

void fields(const auto& visit, EndingRecord& r) {
  each(visit, "how", Named{r.kind, kEndings}, "code", r.code, "pid", r.agent_pid, "ended_ns",
       r.ended_ns);
}

void fields(const auto& visit, GpuRecord& r) {
  each(visit, "index", r.index, "instance", r.instance, "name", r.name, "uuid", r.uuid, "pci",
       r.pci, "sm_count", Maybe{r.sm_count}, "busy_pct", Percent{r.busy_permille}, "sharing",
       Named{r.sharing, kSharings}, "switches_per_s", Maybe{r.switches_per_s}, "process_count",
       r.process_count, "tenant_count", r.tenant_count, "memory_bytes", Maybe{r.memory_bytes},
       "memory_used_bytes", Maybe{r.memory_used_bytes}, "log_records", r.log_records, "log_lost",
       r.log_lost, "policy", r.policy, "gaps", r.gaps, "gaps_missed", r.gaps_missed, "gap_p50_us",
       Maybe{r.gap_p50_us}, "gap_p99_us", Maybe{r.gap_p99_us});
}

void fields(const auto& visit, WaitingRecord& r) {
  each(visit, "pid", r.pid, "start_ticks", r.start_ticks, "uid", r.uid, "gpu", Maybe{r.gpu},
       "since_ns", r.since_ns, "memory_bytes", r.memory_bytes, "length_us", Maybe{r.length_us},
       "command", r.command, "why", r.why);
}

void fields(const auto& visit, TenantGpuUse& r) {
  each(visit, "target_pct", Percent{r.target_permille}, "share_pct", Percent{r.share_permille},
       "gpu_time_ns", r.gpu_time_ns, "sms_entitled", Maybe{r.sms_entitled}, "sms_in_use",
       Maybe{r.sms_in_use}, "sms_sharers", Maybe{r.sms_sharers}, "sms_set", Maybe{r.sms_set},
       "sms_follows", Named{r.sms_follows, kFollows}, "slo_state", Named{r.slo_state, kSloStates},
       "slo_us", Maybe{r.slo_us}, "latency_us", Maybe{r.latency_us}, "p99_us", Maybe{r.p99_us},
       "iterations_per_s", Thousandths{r.iterations_per_ks}, "iteration_source",
       Named{r.iteration_source, kSources}, "confidence_pct", Percent{r.confidence_permille},
       "sms_knee", Maybe{r.sms_knee}, "sms_needed", Maybe{r.sms_needed}, "phase",
       Named{r.phase, kPhases});
}

void fields(const auto& visit, Numbered<TenantRecord>& numbered) {
  TenantRecord& r = numbered.record;
  each(visit, "slot", numbered.slot, "name", r.name, "weight", r.weight, "quota_us",
       Maybe{r.quota_us}, "period_us", r.period_us, "priority", Named{r.priority, kPriorities},
       "memory_max_bytes", Maybe{r.memory_max_bytes}, "sm_percent", Maybe{r.sm_percent}, "slo_us",
       r.slo_us, "length_us", r.length_us, "iterations", r.iterations, "phase",
       Named{r.phase, kTenantPhases}, "gang", Named{r.gang, kGangs}, "sm_min", r.sm_min,
       "is_sm_shown", Flag{r.sm_shown}, "process_count", r.process_count, "memory_bytes",
       r.memory_bytes, "is_frozen_by_user", Flag{r.frozen_by_user}, "freezes", r.freezes,
       "throttled_ns", r.throttled_ns, "turns", r.turns, "held_ns", r.held_ns);
}

void fields(const auto& visit, Numbered<ProcessRecord>& numbered) {
  ProcessRecord& r = numbered.record;
  each(visit, "slot", numbered.slot, "pid", r.pid, "ns_pid", r.ns_pid, "start_ticks", r.start_ticks,
       "uid", r.uid, "gpu", r.gpu, "tenant_slot", r.tenant, "command", r.command, "command_line",
       r.command_line, "cgroup_id", r.cgroup_id, "state", Named{r.state, kStates}, "state_since_ns",
       r.state_since_ns, "note", r.note, "target_pct", Percent{r.target_permille}, "share_pct",
       Percent{r.share_permille}, "slice_us", Maybe{r.slice_us}, "has_bucket", Flag{r.has_bucket},
       "tokens_ns", r.tokens_ns, "switches_per_s", Maybe{r.switches_per_s}, "gpu_time_ns",
       r.gpu_time_ns, "memory_bytes", r.memory_bytes, "freezes", r.freezes, "throttled_ns",
       r.throttled_ns, "is_late_attach", Flag{r.is_late_attach}, "history_pct", r.history_permille,
       "run", r.run, "job", r.job, "job_place", r.job_place, "job_arrived_ns", r.job_arrived_ns,
       "job_service_ns", r.job_service_ns, "job_left_us", Maybe{r.job_left_us}, "job_left_by",
       Named{r.job_left_by, kLeftBy}, "job_iterations", r.job_iterations, "turn",
       Named{r.turn, kTurns}, "turn_since_ns", r.turn_since_ns);
}

template <class Record>
Json written(Record record) {
  Json json = Json::object();
  fields([&](const char* name, auto& member) { json[name] = shown(member); }, record);
  return json;
}

template <class Record>
Record read(const Json& json) {
  if (!json.is_object()) throw std::runtime_error("an object was expected");
  Record record{};
  fields(
      [&](const char* name, auto& member) {
        if (const auto found = json.find(name); found != json.end()) take(*found, member);
      },
      record);
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

std::string_view turn_state_text(TurnState state) {
  return name_of(kTurns, static_cast<uint32_t>(state));
}

std::string_view sharing_text(GpuSharing sharing) {
  return name_of(kSharings, static_cast<uint32_t>(sharing));
}

std::string_view iteration_source_text(uint32_t source) { return name_of(kSources, source); }

std::string_view phase_text(uint32_t phase) { return name_of(kPhases, phase); }

std::string status_json(const PlaneSnapshot& snapshot) {
  Json json{{"agent", written(snapshot.agent)},
            {"last_ending", written(snapshot.ending)},
            {"gpus", Json::array()},
            {"tenants", Json::array()},
            {"processes", Json::array()},
            {"waiting", Json::array()}};
  for (const GpuRecord& gpu : snapshot.gpus) json["gpus"].push_back(written(gpu));
  for (const auto& tenant : snapshot.tenants)
    json["tenants"].push_back(tenant_json(tenant, snapshot.gpus));
  for (const auto& process : snapshot.processes) {
    Json& item = json["processes"].emplace_back(written(process));
    for (const auto& tenant : snapshot.tenants)
      if (tenant.slot == process.record.tenant) item["tenant"] = tenant.record.name;
  }
  for (const WaitingRecord& waiting : snapshot.waiting) json["waiting"].push_back(written(waiting));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<PlaneSnapshot> parse_status_json(std::string_view text) try {
  const Json json = Json::parse(text);
  PlaneSnapshot snapshot;
  snapshot.is_consistent = true;
  snapshot.agent = read<AgentRecord>(json.at("agent"));
  if (const auto ending = json.find("last_ending"); ending != json.end())
    snapshot.ending = read<EndingRecord>(*ending);
  for (const Json& gpu : list(json, "gpus")) snapshot.gpus.push_back(read<GpuRecord>(gpu));
  for (const Json& tenant : list(json, "tenants")) snapshot.tenants.push_back(read_tenant(tenant));
  for (const Json& process : list(json, "processes"))
    snapshot.processes.push_back(read<Numbered<ProcessRecord>>(process));
  if (json.contains("waiting"))
    for (const Json& waiting : list(json, "waiting"))
      snapshot.waiting.push_back(read<WaitingRecord>(waiting));
  return snapshot;
} catch (const std::exception& error) {
  return make_error(std::errc::invalid_argument, "read status", error.what());
}

}  // namespace gpushare
