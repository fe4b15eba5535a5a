// SPDX-License-Identifier: Apache-2.0
// UserIds: the uids of the users that rules name, for those rules that the kernel module applies.
// The name service may be far away, or hang: it is asked on threads of its own, for a few names at
// a time, and what it says late is taken late. One thread, the agent's.
#pragma once

#include <sys/types.h>

#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shmctl/base/clock.h"

namespace gpushare {

class UserIds {
 public:
  // How many are asked for at once.
  static constexpr std::size_t kMostAsked = 8;
  // nullopt: there is no such user. Called on any thread, several times at once.
  using Ask = std::function<std::optional<uid_t>(const std::string&)>;

  explicit UserIds(Ask ask) : ask_(std::move(ask)) {}

  // From now on these names count, and are asked for anew. Waits for 20 ms at most, for all names
  // together.
  void begin(const std::vector<std::string>& names);
  // A number stands for itself. nullopt: there is no such user, or it is not known yet.
  std::optional<uid_t> find(const std::string& name) const;
  // Whether a name has become known since begin() or the last call. Never waits.
  bool take_news();

 private:
  using Answer = std::shared_future<std::optional<uid_t>>;

  void ask_more();
  bool collect(Nanos patience);

  const Ask ask_;
  std::vector<std::string> waiting_;     // not asked for yet; the last is next
  std::map<std::string, Answer> asked_;  // without an answer yet
  // Of a begin() before, for names that hang: they count as asked.
  std::vector<Answer> former_;
  std::map<std::string, std::optional<uid_t>> known_;
};

}  // namespace gpushare
