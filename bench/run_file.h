// SPDX-License-Identifier: Apache-2.0
// Files of results: each line is the JSON object of one run (bench/results/README.md). Measuring
// programs call this from their main thread; bench/record.py is the same for scripts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "shmctl/base/error.h"

namespace gpushare::bench {

// The members with which every run begins: date, gpu and driver ("none"), kernel, cpu, commit and
// command. For programs that need no GPU.
nlohmann::ordered_json run_without_gpu(std::string_view commit, std::string_view command);

// Adds the run to the end of the file, which is made when it is missing. `object`: JSON without a
// line break. Error: of the file system; the file may then hold a part of the line.
Result<> append_run(const std::string& path, std::string_view object);

}  // namespace gpushare::bench
