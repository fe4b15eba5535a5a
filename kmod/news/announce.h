/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a lower floor tells a higher one that something changed, without knowing it. There is one
 * listener: sysfs, which wakes the programs that poll an attribute.
 */
#ifndef GPUSHARE_ANNOUNCE_H
#define GPUSHARE_ANNOUNCE_H

/**
 * enum gs_news - What has changed.
 * @GS_NEWS_AGENT: An agent has registered, or there is none any more.
 * @GS_NEWS_DRIVER: The hook was attached to the driver, or detached from it.
 * @GS_NEWS_SETTINGS: A setting of a tenant, or the set of tenants.
 */
enum gs_news { GS_NEWS_AGENT, GS_NEWS_DRIVER, GS_NEWS_SETTINGS };

void gs_announce_to(void (*listener)(enum gs_news news));
void gs_announce(enum gs_news news);

#endif /* GPUSHARE_ANNOUNCE_H */
