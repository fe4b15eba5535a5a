// SPDX-License-Identifier: Apache-2.0
// Reads what the workloads print, for tests and benches: one JSON object on a line, all members on
// one level; with --report-ms one line after another while they run. Pure; any thread.
#pragma once

#include <optional>
#include <string>

#include "shmctl/base/clock.h"

namespace gpushare {

// The member `key` of a line, or of the last of several lines that has one; nullopt, or an empty
// text, when there is none.
std::optional<double> number_in(const std::string& line, const std::string& key);
std::string text_in(const std::string& line, const std::string& key);

// The work done per ms between two instants, by the reports of its total `key`.
double rate_between(const std::string& output, const std::string& key, Time from, Time to);
// When the first report came that shows more progress than the first one at or after `since`.
std::optional<Time> first_progress(const std::string& output, const std::string& key, Time since);

}  // namespace gpushare
