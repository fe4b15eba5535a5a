# SPDX-License-Identifier: Apache-2.0
$(call program,bin/bench/exporter_scrape,bench/tools/exporter_scrape.cc,lib/libshmctl.a)
$(O)/bin/bench/exporter_scrape: | $(O)/bin/gpushare-exporter
