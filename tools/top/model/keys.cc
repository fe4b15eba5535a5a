// SPDX-License-Identifier: Apache-2.0
#include "tools/top/model/keys.h"

#include <array>

namespace gpushare {

std::span<const KeyHelp> top_keys() {
  static constexpr std::array<KeyHelp, 22> kKeys{{
      {"Up Down", "choose a row; also j k, Page Up, Page Down, Home, End, the mouse"},
      {"f", "freeze the process, or the tenant, in this row (asks first)"},
      {"t", "thaw it (asks first)"},
      {"s F9", "send a signal to it, TERM unless another is typed (asks first)"},
      {"w", "set the weight of its tenant"},
      {"c", "set the cap of its tenant: max, 30%, or quota and period in us"},
      {"p", "set the priority of its tenant: idle, normal or high"},
      {"m", "set how much GPU memory its tenant may have: max, or 12G"},
      {"+ -", "raise or lower the weight of its tenant by a tenth; also F8 F7"},
      {"v F5", "a list of processes; a tree by tenant; a tree by tenant and job"},
      {"Enter", "fold the tenant or the job in this row, and unfold it"},
      {"g", "graphs of the GPUs, or a line for each"},
      {"/ F4", "show only rows that contain a text; Escape shows all"},
      {"F6", "sort by the next column; a click on a title sorts by that one"},
      {"S T", "sort by share, by target; the same key again turns the order"},
      {"G P N U", "sort by GPU, process id, tenant's name, user"},
      {"C L A", "sort by command, slice, state"},
      {"K M", "sort by tokens, memory"},
      {"o E", "sort by the order of turns, by what is left of the job"},
      {"Space", "pause the display, and go on; the agent works on"},
      {"? F1", "this list"},
      {"q F10", "quit"},
  }};
  return kKeys;
}

std::span<const FooterKey> footer_keys() {
  constexpr auto kFunction = Key::Kind::kFunction;
  constexpr auto kCharacter = Key::Kind::kCharacter;
  static constexpr std::array<FooterKey, 13> kKeys{{
      {"F1", "Help", {kFunction, 1}},
      {"F4", "Filter", {kFunction, 4}},
      {"F5", "Tree", {kFunction, 5}},
      {"F6", "Sort", {kFunction, 6}},
      {"F9", "Signal", {kFunction, 9}},
      {"F10", "Quit", {kFunction, 10}},
      {"f", "Freeze", {kCharacter, 'f'}},
      {"t", "Thaw", {kCharacter, 't'}},
      {"w", "Weight", {kCharacter, 'w'}},
      {"c", "Cap", {kCharacter, 'c'}},
      {"p", "Priority", {kCharacter, 'p'}},
      {"m", "Memory", {kCharacter, 'm'}},
      {"g", "Graphs", {kCharacter, 'g'}},
  }};
  return kKeys;
}

}  // namespace gpushare
