// SPDX-License-Identifier: Apache-2.0
// What the workloads print, read again by tests and benches: JSON objects, one a line, all members
// on one level; with --report-ms one line after another while they run.
#pragma once

#include <optional>
#include <string>

#include "shmctl/base/clock.h"

namespace gpushare {

// The member `key` of a line. nullopt, or empty: there is none.
std::optional<double> number_in(const std::string& line, const std::string& key);
std::string text_in(const std::string& line, const std::string& key);

// Work done per ms between two instants, by its reports of the total `key`.
double rate_between(const std::string& output, const std::string& key, Time from, Time to);
// The first report after `since` that shows progress beyond the first one at or after `since`.
std::optional<Time> first_progress(const std::string& output, const std::string& key, Time since);

}  // namespace gpushare
