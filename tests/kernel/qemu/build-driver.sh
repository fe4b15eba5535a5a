#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build-driver.sh SOURCE HEADERS FOLDER: builds what fetch-driver.sh has unpacked against a kernel's
# headers: FOLDER/nvidia.ko, and FOLDER/nvidia-stays.ko, which differs in one condition: it does not
# give up when the machine has no GPU. It does nothing if both exist. It takes about three minutes.
set -eu
source=$(echo "$1"/modules/*/nvidia/nv.c)
source=$(realpath "${source%/nvidia/nv.c}")
headers=$(realpath "$2")
mkdir -p "$3"
folder=$(realpath "$3")
[ ! "$folder/nvidia-stays.ko" -nt "$headers/Module.symvers" ] || exit 0

# A build folder's Makefile includes that of the kernel's source, or of the headers that flavours share.
tree=$(sed -n 's/^include \(.*\)\/Makefile$/\1/p' "$headers/Makefile")
rm -rf "$folder/tree" "$folder"/*.ko
mkdir "$folder/tree"
# The core of 170 MB is only linked, so it is not copied, and neither are the sibling modules.
tar -C "$source" -c --exclude='*.o_binary' Kbuild Makefile conftest.sh common nvidia | tar -x -C "$folder/tree"
ln -s "$source/nvidia/nv-kernel.o_binary" "$folder/tree/nvidia/nv-kernel.o_binary"
# Later updates of Linux 6.1 have one more parameter in this function, as 6.13 has.
if grep -A3 'pci_resize_resource(struct' "$tree/include/linux/pci.h" | grep -q exclude_bars; then
  sed -i 's/pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size)/pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size, 0)/' \
    "$folder/tree/nvidia/nv-pci.c"
fi

build() {
  printf '  %-6s %s\n' KMOD "$folder/$1, $folder/build.log"
  env -u MAKEFLAGS nice make -s -j"$(nproc)" -C "$folder/tree" SYSSRC="$tree" SYSOUT="$headers" IGNORE_CC_MISMATCH=1 \
    NV_KERNEL_MODULES=nvidia modules >>"$folder/build.log" 2>&1 || { tail -n 30 "$folder/build.log" >&2; exit 1; }
  strip --strip-debug -o "$folder/$1" "$folder/tree/nvidia.ko"
}
: >"$folder/build.log"
build nvidia.ko
sed -i 's/(!is_nvswitch_present)/(0)/' "$folder/tree/nvidia/nv.c"
build nvidia-stays.ko
rm -rf "$folder/tree"
