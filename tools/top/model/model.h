// SPDX-License-Identifier: Apache-2.0
// TopModel is what gpushare-top knows and what its keys do: the rows in order, the chosen one, the
// filter, the question that is being asked. It does no I/O: it takes keys and says what the caller
// must do. One thread.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/agent/status_source.h"
#include "tools/top/model/deeds.h"
#include "tools/top/model/keys.h"
#include "tools/top/model/past.h"
#include "tools/top/model/rows.h"
#include "tools/top/model/sensors.h"

namespace gpushare {

// How a person likes to see it; kept.h keeps it from one time to the next.
struct TopChoices {
  Field sort = Field::kShare;
  bool is_reversed = false;
  Grouping grouping = Grouping::kNone;
  bool has_graphs = true;
  bool operator==(const TopChoices&) const = default;
};

// Where a click of the mouse went; at most one is set.
struct TopHit {
  std::optional<size_t> line{};  // of TopModel::lines()
  std::optional<Field> title{};  // of a column
  std::optional<Key> key{};      // of the last line of the screen
};

class TopModel {
 public:
  enum class Mode { kList, kFilter, kInput, kConfirm, kHelp };

  // Begins with these rows in this order.
  explicit TopModel(TopChoices choices = {}, std::string filter = {}, UserNames names = nullptr)
      : choices_(choices), filter_(std::move(filter)), names_(names) {}

  // Takes the latest look, made at `now`. A failed look keeps the rows of the last good one, and
  // failure() says why it failed. `sensors` are those of the status's GPUs, in their order.
  void update(Result<Status> status, Time now, SensorsLook sensors = {});

  // What the caller must do about a key.
  struct Effect {
    bool quits = false;
    Deed deed{};  // do it, then report_done()
  };
  Effect press(Key key, size_t page);  // `page`: lines that are visible
  Effect click(const TopHit& hit);
  // `warnings`: what there is to say of it though it is done.
  void report_done(const Result<>& done, const std::vector<std::string>& warnings = {});
  // For the last line of the screen, until the next key.
  void say(std::string text, bool is_bad = false);

  const Status& status() const { return status_; }
  const std::optional<Error>& failure() const { return failure_; }
  const Past& past() const { return past_; }
  bool has_sensors() const { return sensors_.has_library; }
  // Of the GPU with this place in the snapshot. Nothing is known where there is no NVML.
  GpuSensors sensors(size_t place) const;
  const std::vector<ProcessRow>& rows() const { return rows_; }
  const std::vector<TopLine>& lines() const { return lines_; }
  size_t selected() const { return selected_; }  // index in lines(); 0 when there are none
  Mode mode() const { return mode_; }
  // The first line of the help that is shown, if there are more than fit.
  size_t help_line() const { return help_line_; }
  bool is_paused() const { return is_paused_; }
  const TopChoices& choices() const { return choices_; }
  const std::string& filter() const { return filter_; }
  // What is being typed: what it is, what it may be, and the text so far.
  struct Input {
    std::string about{};    // "weight of train"
    std::string allowed{};  // "1 to 10000"
    std::string text{};
  };
  const Input& input() const { return input_; }
  // The question, or what became of the last request; empty if there is nothing to say.
  const std::string& message() const { return message_; }
  bool is_message_bad() const { return is_message_bad_; }

 private:
  void rebuild();
  void move(ptrdiff_t by);
  void choose(size_t line);
  void sort_by(Field field);
  void sort_by_next();
  void fold();
  Effect press_in_list(Key key, size_t page);
  Effect press_function(int number);
  Effect press_character(char character);
  Effect press_in_filter(Key key);
  Effect press_in_input(Key key);
  Effect press_in_question(Key key);
  Effect press_in_help(Key key);
  const TopLine* line_for(const char* deed);
  void ask(Deed deed);
  void freeze(const char* op);
  void ask_for_setting(const char* key);
  void ask_for_signal();
  void show_weighed(Time now);
  Effect change_weight(bool is_up);
  Effect done(Deed deed);

  TopChoices choices_;
  std::string filter_;
  UserNames names_;
  Status status_;
  std::optional<Error> failure_;
  Past past_;
  SensorsLook sensors_;
  RowOrder order_;
  std::vector<ProcessRow> rows_;
  std::set<LineKey> folded_;
  std::vector<TopLine> lines_;  // into rows_ and status_
  size_t selected_ = 0;
  LineKey chosen_;
  Mode mode_ = Mode::kList;
  size_t help_line_ = 0;
  bool is_paused_ = false;
  std::string message_;
  bool is_message_bad_ = false;
  Input input_;
  bool has_typed_ = false;  // into the input
  std::string setting_;     // that the input is of; empty: a signal
  Target target_;           // of the input
  std::string tenant_;      // of the input
  Deed question_;           // what "y" does
  Deed doing_;              // what is being done
  // A weight that was set, which the agent may not have shown yet when it is looked at next.
  struct Weighed {
    std::string tenant;
    uint32_t weight = 0;
    Time until{};
  };
  std::optional<Weighed> weighed_;
  Time looked_{};
};

}  // namespace gpushare
