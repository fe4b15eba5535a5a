// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>

namespace gpushare {
namespace {

constexpr uint64_t kMostIterations = 1'000'000'000'000;
constexpr uint64_t kMostMicros = 1'000'000'000'000;  // 11 days
constexpr double kMostSeconds = 4e9;                 // the wall clock up to the year 2096
constexpr uint64_t kMostMib = 1 << 30;
constexpr uint32_t kMostGpus = 64;
constexpr double kMostLength = 4e18;  // ns; 126 years

template <class T>
bool set_number(T& member, std::string_view text, uint64_t least, uint64_t most) {
  uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.begin(), text.end(), number);
  if (error != std::errc{} || rest != text.end() || number < least || number > most) return false;
  member = static_cast<T>(number);
  return true;
}

bool set_seconds(Nanos& member, std::string_view text) {
  double seconds = 0;
  const auto [rest, error] = std::from_chars(text.begin(), text.end(), seconds);
  if (error != std::errc{} || rest != text.end()) return false;
  if (!(seconds >= 0 && seconds <= kMostSeconds)) return false;
  member = Nanos(std::llround(seconds * 1e9));
  return true;
}

// A line in the making: the length of the job follows from two columns.
struct Line : TraceJob {
  double iteration_us = 0;
};

struct ColumnRule {
  std::string_view name;
  bool is_needed;
  std::string allowed;
  bool (*set)(Line&, std::string_view);
  std::string (*text)(const TraceJob&);
};

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r#") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

// A column of whole numbers, both ends included.
template <auto kMember, uint64_t kLeast, uint64_t kMost>
ColumnRule whole_number(std::string_view name, bool is_needed) {
  return {name, is_needed, fmt::format("{} to {}", kLeast, kMost),
          [](Line& job, std::string_view text) {
            return set_number(job.*kMember, text, kLeast, kMost);
          },
          [](const TraceJob& job) { return fmt::format("{}", job.*kMember); }};
}

const std::array<ColumnRule, 10>& columns() {
  static const std::array<ColumnRule, 10> all = {{
      {"job", true, "a name",
       [](Line& job, std::string_view text) {
         job.name = text;
         return !text.empty();
       },
       [](const TraceJob& job) { return quoted(job.name); }},
      {"submit_s", true, fmt::format("seconds from 0 to {:.0f}", kMostSeconds),
       [](Line& job, std::string_view text) { return set_seconds(job.submit, text); },
       [](const TraceJob& job) {
         return fmt::format("{}.{:09}", job.submit / 1s, (job.submit % 1s).count());
       }},
      {"model", false, "any text",
       [](Line& job, std::string_view text) {
         job.model = text;
         return true;
       },
       [](const TraceJob& job) { return quoted(job.model); }},
      whole_number<&TraceJob::iterations, 1, kMostIterations>("iterations", true),
      {"iteration_us", true, fmt::format("0.001 to {}", kMostMicros),
       [](Line& job, std::string_view text) {
         const auto [rest, error] = std::from_chars(text.begin(), text.end(), job.iteration_us);
         return error == std::errc{} && rest == text.end() && job.iteration_us >= 0.001 &&
                job.iteration_us <= static_cast<double>(kMostMicros);
       },
       [](const TraceJob& job) {
         // With so many digits the length comes back to the nanosecond.
         return fmt::format("{:.9f}", static_cast<double>(job.length.count()) / 1000 /
                                          static_cast<double>(job.iterations));
       }},
      whole_number<&TraceJob::persistent_mib, 0, kMostMib>("persistent_mib", false),
      whole_number<&TraceJob::ephemeral_mib, 0, kMostMib>("ephemeral_mib", false),
      whole_number<&TraceJob::knee_permille, 1, 1000>("knee_permille", false),
      whole_number<&TraceJob::gpus, 1, kMostGpus>("gpus", false),
      {"user", false, "the number of a user",
       [](Line& job, std::string_view text) {
         uint32_t number = 0;
         const bool is_number = set_number(number, text, 0, ~uint32_t{0});
         if (is_number) job.user = number;
         return is_number;
       },
       [](const TraceJob& job) { return job.user ? fmt::format("{}", *job.user) : ""; }},
  }};
  return all;
}

// `iterations` so that one of them takes from 1 ns to kMostMicros.
TraceJob within_bounds(TraceJob job) {
  constexpr Nanos kLongest{static_cast<int64_t>(kMostLength)};
  constexpr auto kMostOfOne = static_cast<uint64_t>(kMostMicros) * 1000;
  job.length = std::clamp(job.length, Nanos(1), kLongest);
  const auto length = static_cast<uint64_t>(job.length.count());
  const uint64_t least = (length + kMostOfOne - 1) / kMostOfOne;
  job.iterations = std::clamp(job.iterations, least, std::min(length, kMostIterations));
  job.submit = std::clamp(job.submit, Nanos{}, Nanos(static_cast<int64_t>(kMostSeconds * 1e9)));
  job.persistent_mib = std::min(job.persistent_mib, kMostMib);
  job.ephemeral_mib = std::min(job.ephemeral_mib, kMostMib);
  job.gpus = std::clamp(job.gpus, 1U, kMostGpus);
  return job;
}

std::string column_names() {
  std::vector<std::string_view> names;
  for (const ColumnRule& rule : columns()) names.push_back(rule.name);
  return fmt::format("{}", fmt::join(names, ","));
}

// The fields of a line; nothing when a quote is not closed.
std::optional<std::vector<std::string>> split(std::string_view line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (is_quoted) {
      if (c != '"')
        fields.back() += c;
      else if (i + 1 < line.size() && line[i + 1] == '"')
        fields.back() += line[++i];
      else
        is_quoted = false;
    } else if (c == '"' && fields.back().empty()) {
      is_quoted = true;
    } else if (c == ',') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (is_quoted) return std::nullopt;
  return fields;
}

// Reads line by line, so that errors can name them.
class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  Result<> take(std::string_view line) {
    ++line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) return {};
    const auto fields = split(line);
    if (!fields) return wrong("a quotation is not closed");
    return rules_.empty() ? take_heading(*fields) : take_job(*fields);
  }
  Result<TraceJobs> finish() {
    if (rules_.empty()) return wrong(fmt::format("no heading; expected: {}", column_names()));
    std::vector<std::pair<Nanos, size_t>> order;
    for (size_t i = 0; i < jobs_.size(); ++i) order.emplace_back(jobs_[i].submit, i);
    std::ranges::sort(order);
    TraceJobs sorted;
    for (const auto& [submit, place] : order) sorted.push_back(std::move(jobs_[place]));
    return sorted;
  }

 private:
  std::unexpected<Error> wrong(const std::string& text) const {
    return make_error(std::errc::invalid_argument, "read trace",
                      fmt::format("{}:{}: {}", file_, line_, text));
  }

  Result<> take_heading(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const auto* const rule = std::ranges::find(columns(), name, &ColumnRule::name);
      if (rule == columns().end())
        return wrong(fmt::format("unknown column '{}'; known: {}", name, column_names()));
      if (std::ranges::find(rules_, rule) != rules_.end())
        return wrong(fmt::format("the column '{}' is there twice", name));
      rules_.push_back(rule);
    }
    for (const ColumnRule& rule : columns())
      if (rule.is_needed && std::ranges::find(rules_, &rule) == rules_.end())
        return wrong(fmt::format("the column '{}' is missing", rule.name));
    return {};
  }

  Result<> take_job(const std::vector<std::string>& fields) {
    if (fields.size() != rules_.size())
      return wrong(fmt::format("{} fields; the heading has {}", fields.size(), rules_.size()));
    Line job;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].empty() && !rules_[i]->is_needed) continue;
      if (!rules_[i]->set(job, fields[i]))
        return wrong(fmt::format("{}: '{}' is not allowed; allowed: {}", rules_[i]->name, fields[i],
                                 rules_[i]->allowed));
    }
    const double length = static_cast<double>(job.iterations) * job.iteration_us * 1000;
    if (length > kMostLength) return wrong("iterations x iteration_us is more than 126 years");
    job.length = std::max(Nanos(std::llround(length)), Nanos(1));
    jobs_.push_back(std::move(job));
    return {};
  }

  const std::string_view file_;
  size_t line_ = 0;
  std::vector<const ColumnRule*> rules_;  // of the heading; empty: it has not come yet
  TraceJobs jobs_;
};

}  // namespace

Result<TraceJobs> parse_trace(std::string_view text, std::string_view file) {
  Reader reader(file);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (auto taken = reader.take(text.substr(0, end)); !taken)
      return std::unexpected(std::move(taken.error()));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return reader.finish();
}

Result<TraceJobs> read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return errno_error("open trace", path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return errno_error("read trace", path);
  return parse_trace(text, path);
}

std::string trace_text(const TraceJobs& jobs) {
  std::string text = column_names() + '\n';
  for (const TraceJob& each : jobs) {
    const TraceJob job = within_bounds(each);
    for (const ColumnRule& rule : columns()) {
      if (&rule != columns().data()) text += ',';
      text += rule.text(job);
    }
    text += '\n';
  }
  return text;
}

}  // namespace gpushare
