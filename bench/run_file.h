// SPDX-License-Identifier: Apache-2.0
// Adds runs to the files of results, in which each line is the JSON object of one run
// (bench/results/README.md). Measuring programs call this on their main thread; scripts use
// bench/record.py.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "shmctl/base/error.h"

namespace gpushare::bench {

// Returns the members with which the run of a program that needs no GPU begins: date, gpu and
// driver
// ("none"), kernel, cpu, commit and command.
nlohmann::ordered_json run_without_gpu(std::string_view commit, std::string_view command);

// Adds the run to the end of the file, which is made when it is missing. `object` is JSON without a
// line break. An error is the file system's; the file may then hold a part of the line.
Result<> append_run(const std::string& path, std::string_view object);

}  // namespace gpushare::bench
