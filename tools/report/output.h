// SPDX-License-Identifier: Apache-2.0
// Writes a summary of the usage history: as one HTML page that needs nothing else, as JSON, or as
// lines of text. Names of tenants and programs are chosen by others: each is escaped. Pure.
#pragma once

#include <string>

#include "tools/report/summary.h"

namespace gpushare {

// The shares of a GPU over time, stacked, as an SVG element.
std::string share_chart(const ReportGpu& gpu, WallSeconds since, WallSeconds step);

// `host`: the machine's name, for the title.
std::string report_page(const ReportSummary& summary, const std::string& host);
std::string report_json(const ReportSummary& summary);
std::string report_text(const ReportSummary& summary);

// "2026-11-23 10:00", local time.
std::string wall_text(WallSeconds time);

}  // namespace gpushare
