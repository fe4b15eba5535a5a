// SPDX-License-Identifier: GPL-2.0
#include "news/announce.h"

static void (*gs_listener)(enum gs_news news);

/**
 * gs_announce_to() - Set the listener.
 * @listener: The function that is called with all news. It may sleep, and must not take gs_lock,
 *	which the caller of gs_announce() may hold.
 *
 * The module calls this once, while it is loaded and before anything can be announced.
 */
void gs_announce_to(void (*listener)(enum gs_news news))
{
	gs_listener = listener;
}

/**
 * gs_announce() - Tell the listener what has changed.
 * @news: What has changed. The change is visible to readers already.
 */
void gs_announce(enum gs_news news)
{
	gs_listener(news);
}
