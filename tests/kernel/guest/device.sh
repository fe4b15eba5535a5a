# SPDX-License-Identifier: Apache-2.0
# /dev/gpushare of the live module. The program prints GoogleTest's lines itself.
. /test/lib.sh
load_driver
load_module
kmod_device --gtest_color=no
unload_module
