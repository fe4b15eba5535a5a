// SPDX-License-Identifier: Apache-2.0
// Where the other programs and files of gpushare lie, in a build folder and where a package puts
// them.
#pragma once

#include <string>

namespace gpushare {

// The daemon beside this program or in ../sbin; otherwise its name alone, to be looked up in PATH.
std::string find_gpushared();
// The folder of the stand-in for the driver's library, with which programs run on simulated GPUs;
// empty: there is none.
std::string find_simulated_driver();

}  // namespace gpushare
