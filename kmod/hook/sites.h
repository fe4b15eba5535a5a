/* SPDX-License-Identifier: GPL-2.0 */
/* Where the functions of the driver are, by their names. hook.c and parts.c ask. */
#ifndef GPUSHARE_SITES_H
#define GPUSHARE_SITES_H

#define GS_DRIVER "nvidia"
#define GS_DISPLAY_DRIVER "nvidia_drm"

unsigned long gs_site_of(const char *module, const char *name);
const char *gs_sites_find(const char **name);

#endif /* GPUSHARE_SITES_H */
