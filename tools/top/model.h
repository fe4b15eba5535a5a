// SPDX-License-Identifier: Apache-2.0
// TopModel is what gpushare-top knows and what its keys do: the rows in order, the chosen one, the
// filter, the question that is being asked. It does no I/O: it takes keys and says what the caller
// must do. One thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/agent/protocol.h"
#include "tools/agent/status_source.h"
#include "tools/top/past.h"
#include "tools/top/sensors.h"
#include "tools/view/process_table.h"

namespace gpushare {

struct Key {
  enum class Kind {
    kCharacter,
    kUp,
    kDown,
    kPageUp,
    kPageDown,
    kHome,
    kEnd,
    kEnter,
    kEscape,
    kBackspace,
  };
  Kind kind = Kind::kCharacter;
  char character = 0;
};

// A line of the list is a process or, when grouped, a tenant above its processes. A tenant has a
// line for each GPU on which target times decide what it has; otherwise it has one line.
struct TopLine {
  const ProcessRow* process = nullptr;
  const TenantRecord* tenant = nullptr;  // set when this is a tenant's line
  const TenantGpuUse* use = nullptr;     // of `gpu`; set where target times decide
  uint32_t gpu = 0;                      // of `use`
};

class TopModel {
 public:
  enum class Mode { kList, kFilter, kConfirm, kHelp };

  TopModel() = default;
  // Begins with these rows in this order.
  TopModel(Field sort, std::string filter) : sort_field_(sort), filter_(std::move(filter)) {}

  // Takes the latest look, made at `now`. A failed look keeps the rows of the last good one, and
  // failure() says why it failed. `sensors` are those of the status's GPUs, in their order.
  void update(Result<Status> status, Time now, SensorsLook sensors = {});

  // What the caller must do about a key.
  struct Effect {
    bool quits = false;
    std::optional<Request> request;  // send it, then report_done()
  };
  Effect press(Key key, size_t page);  // `page`: lines that are visible
  void report_done(const Result<>& done);

  const Status& status() const { return status_; }
  const std::optional<Error>& failure() const { return failure_; }
  const Past& past() const { return past_; }
  // kOthers if its tenant has no colour of its own.
  Ink ink_of(const ProcessRow& row) const;
  bool has_sensors() const { return sensors_.has_library; }
  // Of the GPU with this place in the snapshot. Nothing is known where there is no NVML.
  GpuSensors sensors(size_t place) const;
  const std::vector<TopLine>& lines() const { return lines_; }
  size_t selected() const { return selected_; }  // index in lines(); 0 when there are none
  Mode mode() const { return mode_; }
  bool is_paused() const { return is_paused_; }
  bool is_grouped() const { return is_grouped_; }
  Field sort_field() const { return sort_field_; }
  bool is_reversed() const { return is_reversed_; }
  const std::string& filter() const { return filter_; }
  // The question, or what became of the last request; empty if there is nothing to say.
  const std::string& message() const { return message_; }
  bool is_message_bad() const { return is_message_bad_; }

 private:
  // Names the chosen line across updates.
  struct Choice {
    uint32_t gpu = 0;
    pid_t pid = 0;       // 0: a tenant's line
    std::string tenant;  // of a tenant's line
    bool operator==(const Choice&) const = default;
  };
  static Choice choice_of(const TopLine& line);

  void rebuild();
  void move(ptrdiff_t by);
  void sort_by(Field field);
  Effect press_in_list(Key key, size_t page);
  Effect press_in_filter(Key key);
  Effect press_in_question(Key key);
  void ask(const char* op);
  Effect change_weight(bool up);
  void say(std::string text, bool is_bad = false);

  Status status_;
  Past past_;
  SensorsLook sensors_;
  std::optional<Error> failure_;
  std::vector<ProcessRow> rows_;
  std::vector<TopLine> lines_;  // into rows_ and status_
  size_t selected_ = 0;
  Choice choice_;
  Mode mode_ = Mode::kList;
  bool is_paused_ = false;
  bool is_grouped_ = false;
  Field sort_field_ = Field::kShare;
  bool is_reversed_ = false;
  std::string filter_;
  std::string message_;
  bool is_message_bad_ = false;
  Request question_;   // what "y" sends
  std::string about_;  // what the request that was sent does
};

}  // namespace gpushare
