# SPDX-License-Identifier: Apache-2.0
# The kernel module's user side is part of libintercept.a.
intercept_sources += $(wildcard intercept/kmod/*.cc)
