#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages: what is in them, and what dpkg does with them. They are installed for real, but
# into a throwaway copy of this machine: an overlay over / in a mount namespace, with no systemd, no
# GPU and, where a test says so, no kernel headers. Nothing outside the namespace changes. Root only.
#   package_test.sh BUILD    BUILD: where `make deb` has put them
# Prints GoogleTest's lines; status 0 when nothing failed.
set -u
here=$(dirname "$(realpath "$0")")
build=$(realpath "$1")
program=$(echo "$build"/deb/gpushare_*.deb)
module=$(echo "$build"/deb/gpushare-dkms_*.deb)
version=$(dpkg-deb -f "$program" Version 2>/dev/null)

# --- inside the namespace -------------------------------------------------------------------------

fail() { # WHAT: the test goes on, and has failed
  echo "package_test.sh: $*"
  failed=1
}
expect() { # WHAT COMMAND...
  local what=$1
  shift
  "$@" || fail "$what"
}

# A copy of / whose changes are in $work/upper.
make_root() {
  work=/mnt
  mount -t tmpfs tmpfs "$work"
  mkdir "$work/upper" "$work/scratch" "$work/root"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/scratch" "$work/root"
  mount -t proc proc "$work/root/proc"
  mount --rbind /dev "$work/root/dev"
  mount -t tmpfs tmpfs "$work/root/tmp"
  cp "$program" "$module" "$work/root/tmp"
  rm -f "$work/root/var/lib/man-db/auto-update" # an index of manuals, of no interest here
}
in_root() { chroot "$work/root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
install_packages() {
  in_root sh -c 'dpkg --force-unsafe-io -i /tmp/gpushare_*.deb /tmp/gpushare-dkms_*.deb' 2>&1
}
is_installed() { [ "$(in_root dpkg-query -W -f '${Status}' "$1" 2>/dev/null)" = "install ok installed" ]; }
built_modules() { find "$work/root"/lib/modules/*/updates/dkms -name 'gpushare.ko*' 2>/dev/null; }

# What the machine has that the packages have not put there themselves: dpkg's, DKMS's and depmod's
# own files, and the group.
left_behind() {
  (cd "$work/upper" && find . -type f -printf '%P\n' | sort) |
    grep -vE '^(var/lib/(dpkg|dkms)/|var/log/|var/cache/|etc/(group|gshadow)-?$|etc/\.pwd\.lock$|(usr/)?lib/modules/[^/]*/modules\.)'
}

# --- the tests --------------------------------------------------------------------------------------

# A list of what is meant to be there, in both directions; all of docs/ is.
TheyHoldWhatTheyShould() {
  local docs=./usr/share/doc/gpushare/docs/
  # Slurm's plugin is built where Slurm's header is.
  diff -u <(grep "$([ -e "$build/lib/slurm" ] && echo . || echo -v /slurm/)" "$here/gpushare.files") <(dpkg-deb -c "$program" | awk '!/\/$/ {print $1, $6}' | grep -vF "$docs" | sort -k 2) ||
    fail "gpushare holds something else"
  diff -u <(cd "$here/../../docs" && find . -maxdepth 1 -type f -printf '%P\n' | sort) \
    <(dpkg-deb -c "$program" | awk '!/\/$/ {print $6}' | sed -n "s|^$docs||p" | sort) || fail "not all of docs/ is there"
  diff -u "$here/gpushare-dkms.files" \
    <(dpkg-deb -c "$module" | awk '!/\/$/ {print $1, $6}' | sed "s/gpushare-$version/gpushare-VERSION/" |
      grep -v '/usr/src/.*\.[ch]$' | sort -k 2) || fail "gpushare-dkms holds something else"
  local sources
  sources=$(dpkg-deb -c "$module" | grep -c '/usr/src/.*\.[ch]$')
  [ "$sources" = "$(find "$here/../../kmod" -name '*.[ch]' | wc -l)" ] || fail "$sources sources of the module"
  ! dpkg-deb -c "$program" | grep -v ' root/root ' || fail "a file that is not root's"
  [ "$(dpkg-deb --ctrl-tarfile "$program" | tar -xO ./conffiles)" = /etc/gpushare/gpushare.toml ] ||
    fail "conffiles of gpushare"
  ! dpkg-deb --ctrl-tarfile "$module" | tar -t | grep -q conffiles || fail "conffiles of gpushare-dkms"
}

# Each page that a link names is there, at the place that it has in the source tree; other links are none.
NoLinkOfAPageLeadsNowhere() {
  local pages page link
  pages=$(mktemp -d)
  dpkg-deb -x "$program" "$pages"
  cd "$pages/usr/share/doc/gpushare" || fail "no pages"
  [ "$(find . -name '*.md' | wc -l)" -gt 25 ] || fail "too few pages"
  while IFS=: read -r page link; do
    [ -e "$(dirname "$page")/${link%%#*}" ] || fail "$page: nothing is at $link"
  done < <(grep -roE '\]\([^)#:][^):]*\)' --include='*.md' . | sed 's/:](/:/; s/)$//')
  rm -rf "$pages"
}

# The distribution's packages whose headers the product includes, or whose archives it is linked with; not the C
# library's, which is shared, and not gRPC's, which only a program has that is in no package.
linked_packages() {
  local top=$here/../..
  {
    grep -rhoE --include='*.cc' --include='*.h' --exclude-dir=kubernetes '^#include <[^>]+>' "$top"/{sched,shmctl,intercept,tools} |
      sed 's/^#include <//; s/>$//' | sort -u | while read -r header; do
      realpath -qe "/usr/include/$header" "/usr/include/$(uname -m)-linux-gnu/$header"
    done
    grep -rhoE --include='*.mk' -e '-l:[a-z0-9]+[.]a' "$top"/{sched,shmctl,intercept,tools} | sed 's|^-l:|*/|'
  } | sort -u | xargs dpkg -S | cut -d: -f1 | sort -u | grep -vE '^(libc6|linux-libc)-dev$' | sed 's/^libboost[0-9.]*-dev$/libboost-dev/'
}

EachLibraryInItIsNamed() {
  local files package packages
  files=$(mktemp -d)
  dpkg-deb -x "$program" "$files"
  cd "$files/usr/share/doc/gpushare" || fail "no pages"
  mapfile -t packages < <(linked_packages)
  [ "${#packages[@]}" -ge 11 ] || fail "too few packages: ${packages[*]}"
  for package in "${packages[@]}"; do
    grep -qF "($package): " copyright || fail "copyright does not name $package"
    expect "the notice of $package is not there" cmp "libraries/$package" "/usr/share/doc/$package/copyright"
  done
  for package in libraries/*; do
    grep -qF "($(basename "$package")): " copyright || fail "copyright does not name $package"
  done
  cd / && rm -rf "$files"
}

# What a program that reads what others wrote is compiled and linked with, as Debian's own.
ProgramsAreHardened() {
  local files file said
  files=$(mktemp -d)
  dpkg-deb -x "$program" "$files"
  while read -r file; do
    said=$(readelf -hldW --dyn-syms "$file")
    [[ $said == *"Type: "*DYN* ]] || fail "$file has a fixed place"
    [[ $said == *GNU_RELRO* && $said == *BIND_NOW* ]] || fail "$file: its table of functions can be written"
    [[ $said != *"GNU_STACK"*" RWE "* ]] || fail "$file: its stack can be executed"
    case $file in */libgpushare.so | */gpushare_spank.so) continue ;; esac # the shim is made without (shim.mk), and the plugin calls nothing of it
    [[ $said == *__stack_chk_fail* ]] || fail "$file: stacks are not guarded"
    [[ $said == *__memcpy_chk* ]] || fail "$file: copies are not checked"
  done < <(find "$files" -type f \( -path '*bin/*' -o -name '*.so' -o -name '*.so.*' \))
  rm -rf "$files"
}

# As lintian looks at them.
NoManualIsWarnedOf() {
  local files page said
  files=$(mktemp -d)
  dpkg-deb -x "$program" "$files"
  [ "$(find "$files/usr/share/man" -name 'gpushare*.gz' | wc -l)" -ge 6 ] || fail "too few manuals"
  for page in "$files"/usr/share/man/man*/*; do
    said=$(zcat "$page" | groff -ww -mandoc -Tutf8 -Z 2>&1 >/dev/null)
    [ -z "$said" ] || fail "$(basename "$page"): $said"
  done
  rm -rf "$files"
}

# Debian 12's DKMS would have the installation of such a kernel's package fail. This one has an older one's headers.
expect_unfit_kernel_installs() { # HEADERS
  local kernel=6.99.0-1-cloud-amd64
  mkdir -p "$work/root/lib/modules/$kernel"
  ln -s "$(readlink "$1")" "$work/root/lib/modules/$kernel/build"
  touch "$work/root/lib/modules/$kernel"/modules.{order,builtin}
  expect "the installation of a kernel fails that the module is not for" in_root /etc/kernel/postinst.d/dkms $kernel
  ! built_modules | grep "/$kernel/.*gpushare\.ko" || fail "the module was built for it"
  ! in_root modprobe -n -S $kernel gpushare 2>/dev/null || fail "modprobe finds a module for it"
  expect "DKMS gives it up" in_root dkms remove "gpushare/$version" -k $kernel >/dev/null
  [ -z "$(find "$work/root/lib/modules/$kernel" -name 'gpushare*')" ] || fail "it was left behind"
  rm -r "$work/root/lib/modules/$kernel"
}

TheyComeAndGo() {
  make_root
  expect "installation" install_packages
  expect "gpushare is not installed" is_installed gpushare
  expect "gpushare-dkms is not installed" is_installed gpushare-dkms
  expect "no group gpushare" grep -q ^gpushare: "$work/root/etc/group"
  expect "the configuration makes tenants, or is not correct" \
    sh -c "chroot '$work/root' gpushared --check-config | grep -F ' 1 tenants'"
  expect "gpushare is not of its package's version" sh -c "chroot '$work/root' gpushare version | grep -qF '$version'"
  local unit=$work/root/lib/systemd/system/gpushared.service
  expect "the unit starts what is not there" test -x "$work/root$(sed -n 's/^ExecStart=//p' "$unit")"
  expect "the unit is not enabled" test -L "$work/root/etc/systemd/system/multi-user.target.wants/gpushared.service"

  local kernels=("$work"/root/lib/modules/6.1.*/build)
  if [ -e "${kernels[0]}" ]; then
    local ko
    ko=$(built_modules | head -n 1)
    if [ -n "$ko" ]; then
      expect "the module is of another version" [ "$(modinfo -F version "$ko")" = "$version" ]
      expect "modprobe does not find the module" in_root modprobe -n -S \
        "$(basename "$(dirname "$(dirname "$(dirname "$ko")")")")" gpushare
    else
      fail "DKMS has built no module"
    fi
    expect_unfit_kernel_installs "${kernels[0]}"
  fi

  echo '# mine' >>"$work/root/etc/gpushare/gpushare.toml"
  in_root chgrp gpushare /etc/gpushare/gpushare.toml
  rm "$work"/root/tmp/*.deb
  for package in "$program" "$module"; do "$here/install/later_version.sh" "$package" "$work/root/tmp"; done
  expect "upgrade" install_packages
  expect "the configuration is not the administrator's any more" \
    grep -q '^# mine' "$work/root/etc/gpushare/gpushare.toml"
  expect "the older module's sources stayed" test ! -e "$work/root/usr/src/gpushare-$version"
  expect "DKMS knows the older module" sh -c "! chroot '$work/root' dkms status | grep -F 'gpushare/$version,'"
  if [ -e "${kernels[0]}" ]; then
    expect "the older module stayed" [ "$(modinfo -F version "$(built_modules | head -n 1)")" = "$version.1" ]
  fi

  # What the agent leaves for the next one.
  mkdir -p "$work/root/run/gpushare/mps" "$work/root/sys/fs/bpf/run-gpushare-region"
  printf '#!/bin/sh\n{ cat; echo "$CUDA_MPS_PIPE_DIRECTORY"; } >/tmp/asked\n' >"$work/root/usr/bin/nvidia-cuda-mps-control"
  chmod +x "$work/root/usr/bin/nvidia-cuda-mps-control"
  expect "gpushare preload enable" in_root gpushare preload enable
  expect "removal" in_root dpkg -r gpushare gpushare-dkms
  [ "$(tr '\n' ' ' <"$work/root/tmp/asked")" = "quit /run/gpushare/mps " ] || fail "MPS was not told to end"
  expect "forks are still followed" test ! -e "$work/root/sys/fs/bpf/run-gpushare-region"
  rm "$work/root/usr/bin/nvidia-cuda-mps-control"
  ! grep -s libgpushare "$work/root/etc/ld.so.preload" || fail "a library is preloaded that is not there"
  rm -f "$work/root/etc/ld.so.preload"
  expect "the configuration went before its package was purged" \
    grep -q '^# mine' "$work/root/etc/gpushare/gpushare.toml"
  expect "a module stayed" test -z "$(built_modules)"
  expect "the module is still to be loaded" test ! -e "$work/root/usr/lib/modules-load.d/gpushare.conf"
  expect "purge" in_root dpkg -P gpushare gpushare-dkms
  ! left_behind || fail "it was left behind"
  ! in_root dkms status gpushare 2>/dev/null | grep . || fail "DKMS knows the module"
}

# A container, or a machine that has never had the headers.
WithoutHeadersTheyInstall() {
  make_root
  mount -t tmpfs tmpfs "$work/root/lib/modules"
  expect "installation" install_packages
  expect "gpushare-dkms is not installed" is_installed gpushare-dkms
  expect "purge" in_root dpkg -P gpushare gpushare-dkms
}

AModuleThatDoesNotBuildBreaksNothing() {
  make_root
  expect "unpacking" in_root sh -c 'dpkg --unpack /tmp/gpushare-dkms_*.deb >/dev/null'
  echo '#error this kernel is not known' >>"$work/root/usr/src/gpushare-$version/main.c"
  local said
  said=$(in_root dpkg --configure gpushare-dkms 2>&1) || fail "configuration: $said"
  expect "gpushare-dkms is not installed" is_installed gpushare-dkms
  if [ -n "$(ls -d "$work"/root/lib/modules/6.1.*/build 2>/dev/null)" ]; then
    [[ $said == *"the kernel module was not built"* ]] || fail "it did not say so: $said"
  fi
  expect "purge" in_root dpkg -P gpushare-dkms
}

# dpkg would say no more than that dependencies are missing.
skip_reason() {
  [ -e "$program" ] || { echo "the packages were not built: debhelper is missing (package debhelper)"; return; }
  [ "$(id -u)" = 0 ] || { echo "only root may install packages"; return; }
  command -v dkms >/dev/null || { echo "dkms is missing (package dkms)"; return; }
  unshare --mount sh -c 'mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w /mnt/r &&
    mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r' 2>/dev/null ||
    echo "no overlay over / can be mounted here"
}

if [ -n "${2:-}" ]; then # in the namespace
  failed=0
  "$2"
  exit $failed
fi

reason=$(skip_reason)
status=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for test in TheyHoldWhatTheyShould NoLinkOfAPageLeadsNowhere EachLibraryInItIsNamed ProgramsAreHardened NoManualIsWarnedOf TheyComeAndGo WithoutHeadersTheyInstall AModuleThatDoesNotBuildBreaksNothing; do
  echo "[ RUN      ] Package.$test"
  start=$SECONDS
  if [ -n "$reason" ] && { [ ! -e "$program" ] || [[ $test == *Come* || $test == *Install* || $test == *Module* ]]; }; then
    printf 'package_test.sh:1: Skipped\n%s\n[  SKIPPED ] Package.%s (0 ms)\n' "$reason" $test
  elif unshare --mount --propagation private "$0" "$build" $test >"$log" 2>&1; then
    echo "[       OK ] Package.$test ($(((SECONDS - start) * 1000)) ms)"
  else
    cat "$log"
    echo "[  FAILED  ] Package.$test ($(((SECONDS - start) * 1000)) ms)"
    status=1
  fi
done
exit $status
