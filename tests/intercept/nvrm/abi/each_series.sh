#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# each_series.sh MAKE BUILD REPOSITORY: runs nvrm_abi_test with the headers of the newest release of each
# series that intercept/nvrm/versions.cc knows. REPOSITORY: a git repository of open-gpu-kernel-modules with
# its tags. Status 0 if all agree.
set -u
make=$1 build=$2 repository=${3:?a git repository of open-gpu-kernel-modules}
folder=$build/driver-headers
failed=0
for series in 535 545 550 555 560 565 570 575 580 590 595; do
  tag=$(git -C "$repository" tag | grep "^$series\\." | sort -V | tail -n 1)
  [ -n "$tag" ] || { echo "$series: the repository has no release of it"; failed=1; continue; }
  rm -rf "$folder" && mkdir -p "$folder"
  git -C "$repository" archive "$tag" version.mk src/common/sdk/nvidia/inc src/nvidia/arch/nvalloc/unix/include |
    tar -x -C "$folder" || { failed=1; continue; }
  # The folder is the same each time, and what was compiled is not.
  rm -f "$build"/obj/tests/intercept/nvrm/abi/*.o
  if "$make" -s --no-print-directory O="$build" OGKM_DIR="$(realpath "$folder")" "$build/bin/tests/nvrm_abi_test" >"$folder/log" 2>&1 &&
    "$build/bin/tests/nvrm_abi_test" >>"$folder/log" 2>&1 && ! grep -q Skipped "$folder/log"; then
    echo "$tag: the same"
  else
    failed=1
    echo "$tag: NOT the same"
    grep -E -A5 'error:|Failure' "$folder/log" | head -n 20
  fi
done
rm -rf "$folder" "$build"/obj/tests/intercept/nvrm/abi/*.o "$build/bin/tests/nvrm_abi_test"
exit $failed
