#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copies pages of the documentation below a folder, each at its place:  install_pages.sh FOLDER PAGE...
# A link to a file that is not among them, as to a source file, becomes the text that it has, because it
# would lead nowhere.
set -eu
folder=$1
shift
for page; do
  install -D -m 644 "$page" "$folder/$page"
  case $page in *.md) ;; *) continue ;; esac
  script=$(
    grep -oE '\]\([^)]+\)' "$page" | sed 's/^](//; s/)$//' | sort -u | while read -r link; do
      case $link in *://* | mailto:* | '#'*) continue ;; esac
      target=$(realpath -m --relative-to=. "$(dirname "$page")/${link%%#*}")
      for there; do [ "$there" != "$target" ] || continue 2; done
      printf 's|\\[\\([^]]*\\)\\](%s)|\\1|g\n' "$(printf '%s' "$link" | sed 's/[.[*^$]/\\&/g')"
    done
  )
  [ -z "$script" ] || sed -i "$script" "$folder/$page"
done
