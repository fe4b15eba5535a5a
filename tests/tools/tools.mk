# SPDX-License-Identifier: Apache-2.0
# The tests start the built programs too, which lie in ../ of their own folder.
$(call gtest,tools_test,$(filter-out %_main.cc tests/tools/kubernetes/grpc/%,$(call below,tests/tools,*.cc)),$(patsubst $(O)/%,%,$(spank_objects)) lib/libkubernetes.a lib/libexporter.a lib/libviews.a lib/libdemo.a lib/libtools.a lib/libsched.a lib/libintercept.a lib/libshmctl.a,$(SQLITE_LIBS))
$(O)/bin/tests/tools_test: | $(addprefix $(O)/,bin/gpushare bin/gpushare-top bin/gpushare-exporter bin/gpushare-sim bin/gpushared bin/tests/iterating_program bin/workloads/steps lib/sim/libcuda.so.1 lib/libgpushare.so)
$(call program,bin/tests/fake_plane,tests/tools/support/fake_plane.cc tests/tools/support/fake_plane_main.cc,lib/libshmctl.a)
$(call program,bin/tests/iterating_program,tests/tools/support/iterating_program_main.cc,lib/libshmctl.a)
