#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same package as one version later would be:  later_version.sh DEB FOLDER
# Its version has ".1" at its end. Of the kernel module's package, the module is a small one, which is built in a second.
set -eu
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
dpkg-deb -R "$1" "$tree/deb"
version=$(dpkg-deb -f "$1" Version) next=$(dpkg-deb -f "$1" Version).1
cd "$tree/deb"
sed -i "s/^Version: .*/Version: $next/" DEBIAN/control
sed -i "s/^version=.*/version=$next/" DEBIAN/p*
if [ -d usr/src ]; then
  source=usr/src/gpushare-$next
  mv "usr/src/gpushare-$version" "$source"
  sed -i "s/^PACKAGE_VERSION=.*/PACKAGE_VERSION=\"$next\"/" "$source/dkms.conf"
  rm -r "${source:?}"/{*.[ch],*/} DEBIAN/md5sums
  echo 'obj-m := gpushare.o' >"$source/Kbuild"
  printf '#include <linux/module.h>\nMODULE_LICENSE("GPL");\nMODULE_VERSION("%s");\n' "$next" >"$source/gpushare.c"
fi
dpkg-deb -b -Znone . "$2" >/dev/null
