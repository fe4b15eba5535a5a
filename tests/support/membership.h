// SPDX-License-Identifier: Apache-2.0
// Whether a value is a member of a set, set like a flag: for fakes that a test tells who hangs, is
// refused or is stopped.
#pragma once

namespace gpushare::test {

template <class Set>
void set_member(Set& set, const typename Set::value_type& value, bool is_member) {
  if (is_member)
    set.insert(value);
  else
    set.erase(value);
}

}  // namespace gpushare::test
