#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build-debug-kernel.sh FOLDER: makes FOLDER/vmlinuz, a kernel with KASAN, lockdep and kmemleak out of
# the distribution's package of its source, and FOLDER/build, what modules for it are built against.
# It does nothing if FOLDER has the same kernel already. If the source cannot be had it says why, and the
# tests skip. It takes about ten minutes on two cores, and 3 GB while it builds.
set -eu
here=$(dirname "$(realpath "$0")")
package=linux-source-6.1
mkdir -p "$1"
folder=$(realpath "$1")
version=$(apt-cache policy $package 2>/dev/null | sed -n 's/^ *Candidate: //p')
if [ -z "$version" ] || [ "$version" = "(none)" ]; then
  [ -e "$folder/vmlinuz" ] || echo "build-debug-kernel.sh: no package $package" >&2
  exit 0
fi
wanted="$version $(sha256sum "$here/debug.config" | cut -c -16)"
[ "$(cat "$folder/made-of" 2>/dev/null)" != "$wanted" ] || exit 0

say() { printf '  %-6s %s\n' KERNEL "$*"; }
say "$package $version with KASAN, lockdep and kmemleak: to $folder, about ten minutes"
unpack() {
  local scratch=$folder/scratch
  rm -rf "$folder/source" "$scratch"
  mkdir -p "$folder/source" "$scratch"
  chmod 755 "$scratch" # apt fetches as its own user
  if ! (cd "$scratch" && apt-get download -qq "$package=$version" >log 2>&1); then
    echo "build-debug-kernel.sh: $package $version: $(tail -n 1 "$scratch/log")" >&2
    exit 0
  fi
  dpkg-deb --fsys-tarfile "$scratch"/$package*.deb | tar -xO "./usr/src/$package.tar.xz" |
    tar -xJ -C "$folder/source" --strip-components=1 --exclude='*/Documentation/[a-z]*' \
      --exclude='*/drivers/gpu/drm/*/*.[ch]' --exclude='*/tools/testing/*'
  rm -rf "$scratch"
  echo "$version" >"$folder/source/unpacked-version"
}
rm -rf "$folder"/{made-of,vmlinuz,build}
[ "$(cat "$folder/source/unpacked-version" 2>/dev/null)" = "$version" ] || unpack

make=(make -s -C "$folder/source" "O=$folder/build" "CC=$(command -v ccache || true) gcc" KBUILD_BUILD_TIMESTAMP=1970-01-01)
env -u MAKEFLAGS "${make[@]}" KCONFIG_ALLCONFIG="$here/debug.config" allnoconfig
# An option that Kconfig did not take over is a mistake in the list.
missing=$(grep -E '^CONFIG' "$here/debug.config" | grep -vxFf "$folder/build/.config" || true)
[ -z "$missing" ] || { echo "build-debug-kernel.sh: not to be had: $missing" >&2; exit 1; }
say "compiling; $folder/build.log grows"
env -u MAKEFLAGS nice "${make[@]}" -j"$(nproc)" bzImage modules >"$folder/build.log" 2>&1 ||
  { tail -n 30 "$folder/build.log" >&2; exit 1; }
cp "$folder/build/arch/x86/boot/bzImage" "$folder/vmlinuz"
# Modules need neither the objects nor the debug information, which takes 1 GB.
find "$folder/build" -name '*.[oa]' ! -path '*/scripts/*' ! -path '*/tools/*' -delete
rm -f "$folder"/build/.tmp_vmlinux* "$folder"/build/arch/x86/boot/compressed/vmlinux*
echo "$wanted" >"$folder/made-of"
say "done: $(du -sh "$folder" | cut -f 1)"
