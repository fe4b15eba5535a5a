# SPDX-License-Identifier: Apache-2.0
# The pictures of the README are committed; this makes them again. The second needs tmux.
.PHONY: pictures
pictures: $(addprefix $(O)/,$(addprefix bin/,gpushare gpushared gpushare-sim gpushare-top workloads/spin workloads/endless) $(libcuda_standin))  ## docs/*.svg again, from bench/results and a simulated run
	python3 docs/pictures/figures.py docs/figures.svg
	python3 docs/pictures/top.py $(O) docs/gpushare-top.svg docs/gpushare-top-tree.svg
