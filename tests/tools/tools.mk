# SPDX-License-Identifier: Apache-2.0
# The tests start the built programs too, which lie in ../ of their own folder.
$(call gtest,tools_test,$(filter-out %_main.cc,$(wildcard tests/tools/*.cc)),lib/libtools.a lib/libshmctl.a)
$(O)/bin/tests/tools_test: | $(O)/bin/gpushare $(O)/bin/gpushare-top $(O)/lib/libgpushare.so
$(call program,bin/tests/fake_plane,tests/tools/fake_plane.cc tests/tools/fake_plane_main.cc,lib/libshmctl.a)
