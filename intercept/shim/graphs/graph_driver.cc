// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/graphs/graph_driver.h"

#include "intercept/shim/driver/lookup.h"

namespace gpushare::shim {
namespace {

constexpr const char* kNames[] = {GS_GRAPH_FUNCTIONS(GS_FUNCTION_NAME)};

constinit DriverTable<GraphDriver> table(kNames);

}  // namespace

const GraphDriver* graph_driver() { return table.get(); }

}  // namespace gpushare::shim
