// SPDX-License-Identifier: GPL-2.0
/*
 * Memory in control files: a client puts some into a file, which keeps it, and another one, that has
 * got the file, makes an object of it. As in RM (os.c) a file has a number of places, one if it was
 * made by the call for one object.
 */
#include <linux/file.h>
#include <linux/slab.h>

#include "kept/carry.h"

static u32 prepare(struct sn_file *file, u32 places)
{
	if (file->places || places == 0 || places > CARRY_EXPORT_MAX)
		return GS_NV_ERR_INVALID_ARGUMENT;
	file->places = kcalloc(places, sizeof(*file->places), GFP_KERNEL);
	if (!file->places)
		return GS_NV_ERR_NO_MEMORY;
	file->places_count = places;
	return GS_NV_OK;
}

static u32 put_in(struct sn_client *client, struct sn_file *file, u32 place, u32 handle)
{
	struct sn_object *object = handle ? sn_find(client->handle, handle) : NULL;

	if (handle && (!object || object->class_id != GS_CLASS_MEMORY_LOCAL_USER))
		return GS_NV_ERR_INVALID_OBJECT_HANDLE;
	if (object)
		kref_get(&object->memory->refs);
	if (file->places[place])
		sn_memory_put(file->places[place]);
	file->places[place] = object ? object->memory : NULL;
	return GS_NV_OK;
}

static u32 take_out(struct sn_client *client, struct sn_file *file, u32 place, u32 parent,
		    u32 *handle)
{
	struct sn_object *object;
	u32 status;

	if (!file->places[place])
		return GS_NV_OK;
	status = sn_object_make(client, parent, handle, GS_CLASS_MEMORY_LOCAL_USER, &object);
	if (status)
		return status;
	object->memory = file->places[place];
	kref_get(&object->memory->refs);
	return GS_NV_OK;
}

/* By this function, too, the real driver gives a file back. */
void nv_put_file_private(void *file);
noinline void nv_put_file_private(void *file)
{
	fput(file);
}

static struct sn_file *get_control_file(s32 fd, struct file **holder)
{
	struct sn_file *file = sn_file_get(fd, holder);

	if (file && file->minor == GS_NV_CTL_MINOR)
		return file;
	if (file)
		fput(*holder);
	return NULL;
}

u32 sn_export_object(struct sn_object *object, void *params)
{
	struct carry_export_one *one = params;
	struct file *holder;
	struct sn_file *file = get_control_file(one->fd, &holder);
	u32 status;

	if (!file)
		return GS_NV_ERR_INVALID_ARGUMENT;
	status = prepare(file, 1);
	if (!status)
		status = put_in(object->client, file, 0, one->object);
	nv_put_file_private(holder);
	return status;
}

u32 sn_import_object(struct sn_object *object, void *params)
{
	struct carry_import_one *one = params;
	struct file *holder;
	struct sn_file *file = get_control_file(one->fd, &holder);
	u32 status = GS_NV_ERR_INVALID_ARGUMENT;

	if (!file)
		return status;
	if (file->places && file->places[0])
		status = take_out(object->client, file, 0, one->parent, &one->object);
	nv_put_file_private(holder);
	return status;
}

u32 sn_export_objects(struct sn_object *object, void *params)
{
	struct carry_export *some = params;
	struct file *holder;
	struct sn_file *file = get_control_file(some->fd, &holder);
	u32 status = GS_NV_OK, i;

	if (!file)
		return GS_NV_ERR_INVALID_ARGUMENT;
	if (!file->places)
		status = prepare(file, some->places);
	if (!status && some->count + some->first > file->places_count)
		status = GS_NV_ERR_INVALID_ARGUMENT;
	for (i = 0; !status && i < some->count; i++)
		status = put_in(object->client, file, some->first + i, some->objects[i]);
	nv_put_file_private(holder);
	return status;
}

u32 sn_import_objects(struct sn_object *object, void *params)
{
	struct carry_import *some = params;
	struct file *holder;
	struct sn_file *file = get_control_file(some->fd, &holder);
	u32 status = GS_NV_OK, i;

	if (!file)
		return GS_NV_ERR_INVALID_ARGUMENT;
	if (!file->places || some->count > CARRY_IMPORT_MAX ||
	    some->count + some->first > file->places_count)
		status = GS_NV_ERR_INVALID_ARGUMENT;
	for (i = 0; !status && i < some->count; i++)
		status = take_out(object->client, file, some->first + i, some->parent,
				  &some->objects[i]);
	nv_put_file_private(holder);
	return status;
}

void sn_file_empty(struct sn_file *file)
{
	u32 i;

	for (i = 0; i < file->places_count; i++)
		if (file->places[i])
			sn_memory_put(file->places[i]);
	kfree(file->places);
}
