// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/graphs/graph_driver.h"

#include "intercept/shim/driver/lookup.h"

namespace gpushare::shim {
namespace {

#define GS_NAME(name, parameters) #name,
constexpr const char* kNames[] = {GS_GRAPH_FUNCTIONS(GS_NAME)};
#undef GS_NAME

constinit DriverTable<GraphDriver> table(kNames);

}  // namespace

const GraphDriver* graph_driver() { return table.get(); }

}  // namespace gpushare::shim
