// SPDX-License-Identifier: GPL-2.0
/*
 * Names that RM has for a program's memory, which keep the memory when the program frees it. What
 * nvidia_uvm asks for has the real driver's names and arguments. The handles are small numbers here,
 * and the least that is free is given.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "standin.h"
#include "uvm.h"

struct sn_name {
	u32 handle;
	struct sn_memory *memory;
	struct list_head in_names;
};

static LIST_HEAD(names); /* by handle; under sn_lock */

static unsigned int name_delay_ms;
module_param(name_delay_ms, uint, 0644);
MODULE_PARM_DESC(name_delay_ms, "Time before a name is given to nvidia_uvm (0)");

/* Puts a name into the list, behind all that have a smaller handle without a gap. */
static void give_handle(struct sn_name *name)
{
	struct sn_name *other;

	name->handle = 1;
	list_for_each_entry(other, &names, in_names) {
		if (other->handle != name->handle)
			break;
		name->handle++;
	}
	list_add_tail(&name->in_names, &other->in_names);
}

u32 sn_name_memory(u32 client, u32 memory, u32 *handle, struct sn_memory **named)
{
	struct sn_object *object = sn_find(client, memory);
	struct sn_name *name;

	if (!object)
		return GS_NV_ERR_INVALID_OBJECT_HANDLE;
	if (object->class_id != GS_CLASS_MEMORY_LOCAL_USER &&
	    object->class_id != GS_CLASS_MEMORY_SYSTEM)
		return GS_NV_ERR_INVALID_ARGUMENT;
	name = kzalloc(sizeof(*name), GFP_KERNEL);
	if (!name)
		return GS_NV_ERR_NO_MEMORY;
	name->memory = object->memory;
	kref_get(&name->memory->refs);
	give_handle(name);
	*handle = name->handle;
	*named = name->memory;
	return GS_NV_OK;
}

u32 sn_name_drop(u32 handle)
{
	struct sn_name *name, *found = NULL;

	list_for_each_entry(name, &names, in_names)
		if (name->handle == handle)
			found = name;
	if (!found)
		return GS_NV_ERR_INVALID_OBJECT_HANDLE;
	list_del(&found->in_names);
	sn_memory_put(found->memory);
	kfree(found);
	return GS_NV_OK;
}

u32 nvUvmInterfaceDupMemory(void *device, u32 client, u32 memory, u32 *handle,
			    struct uvm_memory_info *info)
{
	struct sn_memory *named;
	u32 status;

	if (name_delay_ms)
		msleep_interruptible(name_delay_ms);
	mutex_lock(&sn_lock);
	status = sn_name_memory(client, memory, handle, &named);
	if (!status) {
		info->is_system = !named->gpu;
		info->is_of_device = true;
		info->page_size = 65536;
		info->size = named->bytes;
	}
	mutex_unlock(&sn_lock);
	return status;
}
EXPORT_SYMBOL(nvUvmInterfaceDupMemory);

u32 nvUvmInterfaceFreeDupedHandle(void *device, u32 handle)
{
	u32 status;

	mutex_lock(&sn_lock);
	status = sn_name_drop(handle);
	mutex_unlock(&sn_lock);
	return status;
}
EXPORT_SYMBOL(nvUvmInterfaceFreeDupedHandle);
