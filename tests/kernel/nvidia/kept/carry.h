/* SPDX-License-Identifier: GPL-2.0 */
/* The controls of a client by which memory goes into control files and out of them. */
#ifndef STANDIN_CARRY_H
#define STANDIN_CARRY_H

#include "standin.h"

u32 sn_export_object(struct sn_object *object, void *params);  /* struct carry_export_one */
u32 sn_import_object(struct sn_object *object, void *params);  /* struct carry_import_one */
u32 sn_export_objects(struct sn_object *object, void *params); /* struct carry_export */
u32 sn_import_objects(struct sn_object *object, void *params); /* struct carry_import */

#endif /* STANDIN_CARRY_H */
