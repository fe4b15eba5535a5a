#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# changed_sources.sh COMMIT: the .cc files that differ from the last commit that this tree has in common
# with COMMIT, also by what is not committed, and those that include a header which does. Of a COMMIT that
# is not there: the files of the last commit.
set -eu
base=$(git merge-base "$1" HEAD 2>/dev/null || git rev-parse HEAD~1)
changed=$(git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h'; git ls-files --others --exclude-standard -- '*.cc' '*.h')
{
  printf '%s\n' "$changed" | grep '[.]cc$' || true
  for header in $(printf '%s\n' "$changed" | grep '[.]h$' || true); do
    git grep -lF "#include \"$header\"" -- '*.cc' || true
  done
} | sort -u
