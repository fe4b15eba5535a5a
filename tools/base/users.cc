// SPDX-License-Identifier: Apache-2.0
#include "tools/base/users.h"

#include <pwd.h>

#include <map>
#include <mutex>

namespace gpushare {

std::string user_name(uid_t uid) {
  static std::mutex mutex;
  static std::map<uid_t, std::string> names;
  const std::lock_guard lock(mutex);
  auto [name, is_new] = names.try_emplace(uid);
  if (is_new) {
    const passwd* const user = ::getpwuid(uid);
    name->second = user == nullptr ? std::to_string(uid) : user->pw_name;
  }
  return name->second;
}

}  // namespace gpushare
