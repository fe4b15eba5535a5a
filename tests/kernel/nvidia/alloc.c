// SPDX-License-Identifier: GPL-2.0
/* What an object of each class needs when it is made, and what goes when it is freed. */
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "standin.h"

#define MEMORY_GRAIN 0x10000ull /* sizes are rounded up to it, or to huge pages if asked for */
#define MEMORY_GRAIN_HUGE 0x200000ull
#define ATTR_PAGE_SIZE(attr) ((attr) >> 23 & 3)
#define ATTR_PAGE_SIZE_HUGE 3
#define CLASS_MEMORY_SYSTEM_DYNAMIC 0x3Du
#define MAPPED_MAX (16ull << 20)
#define SLICE_GR_US 2048 /* defaults that the real driver was seen to have */
#define SLICE_COPY_US 1024

static bool is_root(u32 class_id)
{
	return class_id == GS_CLASS_ROOT || class_id == GS_CLASS_ROOT_NON_PRIV ||
	       class_id == GS_CLASS_ROOT_CLIENT;
}

static bool is_channel(u32 class_id)
{
	return class_id > 0xFF && class_id <= 0xFFFF &&
	       (class_id & 0xFF) == GS_CHANNEL_CLASS_LOW_BYTE;
}

/* --- memory --------------------------------------------------------------------------------- */

static void memory_release(struct kref *refs)
{
	struct sn_memory *memory = container_of(refs, struct sn_memory, refs);

	if (memory->gpu)
		memory->gpu->memory_used -= memory->bytes;
	vfree(memory->pages);
	kfree(memory);
}

void sn_memory_put(struct sn_memory *memory)
{
	kref_put(&memory->refs, memory_release);
}

/* It takes video memory of @gpu, if not NULL. *bytes is rounded by @attr, as the driver does. */
static u32 memory_make(struct sn_object *object, struct sn_gpu *gpu, u64 *bytes, u32 attr)
{
	struct sn_memory *memory;

	if (*bytes == 0 || *bytes > (1ull << 60))
		return GS_NV_ERR_INVALID_ARGUMENT;
	*bytes = round_up(*bytes, ATTR_PAGE_SIZE(attr) == ATTR_PAGE_SIZE_HUGE ? MEMORY_GRAIN_HUGE :
										MEMORY_GRAIN);
	if (gpu && *bytes > sn_memory_bytes() - gpu->memory_used)
		return GS_NV_ERR_NO_MEMORY;
	memory = kzalloc(sizeof(*memory), GFP_KERNEL);
	if (!memory)
		return GS_NV_ERR_NO_MEMORY;
	kref_init(&memory->refs);
	memory->gpu = gpu;
	memory->bytes = *bytes;
	if (gpu)
		gpu->memory_used += *bytes;
	object->memory = memory;
	return GS_NV_OK;
}

static u32 memory_make_mapped(struct sn_object *object, u64 bytes)
{
	void *pages;
	u32 status;

	if (bytes == 0 || bytes > MAPPED_MAX)
		return GS_NV_ERR_INVALID_ARGUMENT;
	pages = vmalloc_user(bytes);
	if (!pages)
		return GS_NV_ERR_NO_MEMORY;
	status = memory_make(object, NULL, &(u64){bytes}, 0);
	if (status) {
		vfree(pages);
		return status;
	}
	object->memory->bytes = bytes;
	object->memory->pages = pages;
	return GS_NV_OK;
}

/* --- the other classes ---------------------------------------------------------------------- */

static u32 device_make(struct sn_object *object, const struct gs_device_params *params)
{
	struct sn_gpu *gpu = sn_gpu_by_instance(params->device_id);

	if (!object->client->has_attached)
		return GS_NV_ERR_INSUFFICIENT_PERMISSIONS;
	if (!gpu)
		return GS_NV_ERR_INVALID_ARGUMENT;
	object->gpu = gpu;
	return GS_NV_OK;
}

static u32 group_make(struct sn_object *object, const struct gs_group_params *params)
{
	struct sn_group *group;

	if (!object->gpu)
		return GS_NV_ERR_INVALID_OBJECT_HANDLE;
	group = kzalloc(sizeof(*group), GFP_KERNEL);
	if (!group)
		return GS_NV_ERR_NO_MEMORY;
	group->object = object;
	group->engine = params->engine_type;
	group->slice_us = params->engine_type == GS_ENGINE_TYPE_GR0 ? SLICE_GR_US : SLICE_COPY_US;
	INIT_LIST_HEAD(&group->channels);
	sn_runlist_advance(object->gpu);
	list_add_tail(&group->in_runlist, &object->gpu->runlist.groups);
	object->group = group;
	return GS_NV_OK;
}

static u32 channel_make(struct sn_object *object)
{
	struct sn_object *above = sn_find(object->client->handle, object->parent);
	struct sn_channel *channel;

	if (!above || above->class_id != GS_CLASS_CHANNEL_GROUP || !above->group)
		return GS_NV_ERR_INVALID_OBJECT_HANDLE;
	channel = kzalloc(sizeof(*channel), GFP_KERNEL);
	if (!channel)
		return GS_NV_ERR_NO_MEMORY;
	channel->object = object;
	channel->group = above->group;
	list_add_tail(&channel->in_group, &above->group->channels);
	object->channel = channel;
	return GS_NV_OK;
}

static struct sn_memory *mapped_memory(struct sn_client *client, u32 handle)
{
	struct sn_object *object = sn_find(client->handle, handle);

	return object && object->class_id == GS_CLASS_MEMORY_DEVICELESS ? object->memory : NULL;
}

static u32 buffer_make(struct sn_object *object, const struct gs_event_buffer_params *params)
{
	struct sn_object *subdevice = sn_find(object->client->handle, params->h_subdevice);
	struct sn_memory *header = mapped_memory(object->client, params->h_header);
	struct sn_memory *records = mapped_memory(object->client, params->h_records);
	struct sn_buffer *buffer;

	if (!subdevice || subdevice->class_id != GS_CLASS_SUBDEVICE || !header || !records ||
	    params->record_size != sizeof(struct gs_switch_record) || params->record_count == 0 ||
	    header->bytes < sizeof(struct gs_event_buffer_header) ||
	    params->record_count > records->bytes / sizeof(struct gs_switch_record))
		return GS_NV_ERR_INVALID_ARGUMENT;
	buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	if (!buffer)
		return GS_NV_ERR_NO_MEMORY;
	kref_get(&header->refs);
	kref_get(&records->refs);
	buffer->gpu = subdevice->gpu;
	buffer->header = header;
	buffer->records = records;
	buffer->count = params->record_count;
	list_add_tail(&buffer->in_gpu, &buffer->gpu->buffers);
	object->buffer = buffer;
	return GS_NV_OK;
}

void sn_object_clear(struct sn_object *object)
{
	struct sn_channel *channel, *next;

	if (is_channel(object->class_id) && object->channel) {
		channel = object->channel;
		if (channel->group) {
			sn_runlist_advance(object->gpu);
			list_del(&channel->in_group);
			sn_runlist_settle(object->gpu);
		}
		kfree(channel);
		return;
	}
	switch (object->class_id) {
	case GS_CLASS_CHANNEL_GROUP:
		if (!object->group)
			return;
		if (object->group->duplicate == object) {
			object->group->duplicate = NULL;
			return;
		}
		if (object->group->duplicate)
			object->group->duplicate->group = NULL;
		list_for_each_entry_safe(channel, next, &object->group->channels, in_group) {
			list_del(&channel->in_group);
			channel->group = NULL;
		}
		sn_runlist_remove(object->group);
		kfree(object->group);
		break;
	case GS_CLASS_EVENT_BUFFER:
		if (object->buffer)
			sn_buffer_free(object->buffer);
		break;
	case GS_CLASS_MEMORY_SYSTEM:
	case GS_CLASS_MEMORY_LOCAL_USER:
	case GS_CLASS_MEMORY_DEVICELESS:
		if (object->memory)
			sn_memory_put(object->memory);
		break;
	}
}

/* --- calls that make objects ---------------------------------------------------------------- */

union params {
	struct gs_device_params device;
	struct gs_subdevice_params subdevice;
	struct gs_group_params group;
	struct gs_memory_params memory;
	struct gs_event_buffer_params buffer;
};

/* The size of a class's parameters; 0 if it takes none that matter here. */
static u32 params_size_of(u32 class_id)
{
	switch (class_id) {
	case GS_CLASS_DEVICE:
		return sizeof(struct gs_device_params);
	case GS_CLASS_SUBDEVICE:
		return sizeof(struct gs_subdevice_params);
	case GS_CLASS_CHANNEL_GROUP:
		return sizeof(struct gs_group_params);
	case GS_CLASS_MEMORY_SYSTEM:
	case GS_CLASS_MEMORY_LOCAL_USER:
	case GS_CLASS_MEMORY_DEVICELESS:
		return sizeof(struct gs_memory_params);
	case GS_CLASS_EVENT_BUFFER:
		return sizeof(struct gs_event_buffer_params);
	default:
		return 0;
	}
}

static bool is_device(const struct sn_object *object)
{
	return object &&
	       (object->class_id == GS_CLASS_DEVICE || object->class_id == GS_CLASS_SUBDEVICE);
}

static u32 fill(struct sn_object *object, union params *params)
{
	struct sn_object *above = sn_find(object->client->handle, object->parent);

	if (is_channel(object->class_id))
		return channel_make(object);
	switch (object->class_id) {
	case GS_CLASS_DEVICE:
		return device_make(object, &params->device);
	case GS_CLASS_SUBDEVICE:
		return above->class_id == GS_CLASS_DEVICE ? GS_NV_OK :
							    GS_NV_ERR_INVALID_OBJECT_HANDLE;
	case GS_CLASS_CHANNEL_GROUP:
		return group_make(object, &params->group);
	case GS_CLASS_MEMORY_LOCAL_USER:
		/* As in RM (resource_list.h), system memory is made below a device only. */
		return object->gpu && is_device(above) ?
			       memory_make(object, object->gpu, &params->memory.size,
					   params->memory.attr) :
			       GS_NV_ERR_INVALID_OBJECT_HANDLE;
	case GS_CLASS_MEMORY_SYSTEM:
		if (!above || above->class_id != GS_CLASS_DEVICE)
			return GS_NV_ERR_INVALID_OBJECT_HANDLE;
		return memory_make(object, NULL, &params->memory.size, params->memory.attr);
	case GS_CLASS_MEMORY_DEVICELESS:
		return memory_make_mapped(object, params->memory.size);
	case GS_CLASS_EVENT_BUFFER:
		return buffer_make(object, &params->buffer);
	default:
		/* Engine objects hang below a channel and do nothing here. */
		return above && is_channel(above->class_id) ? GS_NV_OK : GS_NV_ERR_NOT_SUPPORTED;
	}
}

/* @params, of any class, is as it came from the caller; the driver fills in its answer. */
static u32 make(struct sn_file *file, u32 client_handle, u32 parent, u32 *handle, u32 class_id,
		union params *params)
{
	struct sn_client *client;
	struct sn_object *object;
	u32 status;

	if (is_root(class_id))
		return client_handle || parent ? GS_NV_ERR_INVALID_ARGUMENT :
						 sn_client_make(file, class_id, handle);
	client = sn_client_of(file, client_handle);
	if (!client)
		return GS_NV_ERR_INVALID_CLIENT;
	status = sn_object_make(client, parent, handle, class_id, &object);
	if (status)
		return status;
	status = fill(object, params);
	if (status)
		sn_object_free(object);
	return status;
}

/* Parameters have the size of their class, whatever size the caller says. */
static u32 make_with_user_params(struct sn_file *file, struct gs_nvos64 *call)
{
	u32 size = params_size_of(call->h_class), status = GS_NV_OK;
	void *user = (void *)(unsigned long)call->p_params;
	union params params = {};

	if (sn_params_delay_ms)
		msleep_interruptible(sn_params_delay_ms);
	if (user && size)
		status = os_memcpy_from_user(&params, user, size);
	if (!status)
		status = make(file, call->h_root, call->h_parent, &call->h_new, call->h_class,
			      &params);
	if (status || !user || !size)
		return status;
	status = os_memcpy_to_user(user, &params, size);
	if (status)
		sn_object_free(sn_find(is_root(call->h_class) ? call->h_new : call->h_root,
				       call->h_new));
	return status;
}

SN_HANDLER(sn_rm_alloc, gs_nvos64, make_with_user_params)

int sn_rm_alloc21(struct sn_file *file, void *arg)
{
	struct gs_nvos21 *call = arg;
	struct gs_nvos64 longer = {
		.h_root = call->h_root,
		.h_parent = call->h_parent,
		.h_new = call->h_new,
		.h_class = call->h_class,
		.p_params = call->p_params,
		.params_size = call->params_size,
	};

	call->status = make_with_user_params(file, &longer);
	call->h_new = longer.h_new;
	return 0;
}

int sn_rm_alloc_object(struct sn_file *file, void *arg)
{
	struct gs_nvos05 *call = arg;
	union params params = {};

	call->status =
		make(file, call->h_root, call->h_parent, &call->h_new, call->h_class, &params);
	return 0;
}

/* For video memory this only answers how much there is, by an object that holds none. */
static u32 tell_heap_size(struct sn_file *file, struct gs_nvos02_fd *call)
{
	struct sn_client *client = sn_client_of(file, call->h_root);
	struct sn_object *object;

	if (!client)
		return GS_NV_ERR_INVALID_CLIENT;
	call->limit = sn_memory_bytes() - 1;
	return sn_object_make(client, call->h_parent, &call->h_new, CLASS_MEMORY_SYSTEM_DYNAMIC,
			      &object);
}

int sn_rm_alloc_memory(struct sn_file *file, void *arg)
{
	struct gs_nvos02_fd *call = arg;
	union params params = {};

	if (call->h_class == GS_CLASS_MEMORY_LOCAL_USER) {
		call->status = tell_heap_size(file, call);
		return 0;
	}
	if (call->h_class != GS_CLASS_MEMORY_SYSTEM) {
		call->status = GS_NV_ERR_NOT_SUPPORTED;
		return 0;
	}
	params.memory.size = call->limit + 1;
	call->status =
		make(file, call->h_root, call->h_parent, &call->h_new, call->h_class, &params);
	if (!call->status)
		call->limit = params.memory.size - 1;
	return 0;
}

/* A surface has its members elsewhere, and the driver computes its size. */
struct tiled {
	u8 before[56];
	u32 height;
	s32 pitch;
	u32 attr;
};
#define HEAP_ALLOC_TILED 6u

/* The older call for memory. It makes video memory unless an attribute says otherwise. */
int sn_rm_heap(struct sn_file *file, void *arg)
{
	struct gs_nvos32_head *call = arg;
	bool is_range = call->function == GS_HEAP_ALLOC_SIZE_RANGE;
	const struct tiled *tiled = arg;
	u32 attr = call->function == HEAP_ALLOC_TILED ? tiled->attr : call->attr;
	bool is_video = (attr & GS_MEMORY_ATTR_LOCATION_MASK) == 0;
	struct sn_object *object;
	union params params = {};

	switch (call->function) {
	case GS_HEAP_FREE:
		object = sn_client_of(file, call->h_root) ? sn_find(call->h_root, call->h_memory) :
							    NULL;
		if (object)
			sn_object_free(object);
		call->status = object ? GS_NV_OK : GS_NV_ERR_INVALID_OBJECT_HANDLE;
		break;
	case HEAP_ALLOC_TILED:
		call->size = (u64)tiled->height * tiled->pitch;
		fallthrough;
	case GS_HEAP_ALLOC_SIZE:
	case GS_HEAP_ALLOC_SIZE_RANGE:
		if (call->flags & GS_HEAP_FLAGS_VIRTUAL)
			is_video = false;
		params.memory.size = is_range ? call->height_or_range_size : call->size;
		params.memory.attr = attr;
		call->status = make(file, call->h_root, call->h_parent, &call->h_memory,
				    is_video ? GS_CLASS_MEMORY_LOCAL_USER : GS_CLASS_MEMORY_SYSTEM,
				    &params);
		if (call->status)
			break;
		if (is_range)
			call->height_or_range_size = params.memory.size;
		else
			call->size = params.memory.size;
		break;
	default:
		call->status = GS_NV_ERR_NOT_SUPPORTED;
	}
	return 0;
}

/* Memory may have any number of names, a group two. */
static u32 duplicate(struct sn_file *file, struct gs_nvos55 *call)
{
	struct sn_client *client = sn_client_of(file, call->h_client);
	struct sn_object *source = sn_find(call->h_client_src, call->h_object_src), *object;
	bool is_group;
	u32 status;

	if (!client)
		return GS_NV_ERR_INVALID_CLIENT;
	if (!source)
		return GS_NV_ERR_INVALID_OBJECT_HANDLE;
	is_group = source->class_id == GS_CLASS_CHANNEL_GROUP && source->group &&
		   !source->group->duplicate;
	if (source->class_id != GS_CLASS_MEMORY_LOCAL_USER &&
	    source->class_id != GS_CLASS_MEMORY_SYSTEM && !is_group)
		return GS_NV_ERR_NOT_SUPPORTED;
	/* RM lets a process duplicate another's object only if that was shared. */
	if (source->client->pid != client->pid && !sn_is_shared)
		return GS_NV_ERR_INSUFFICIENT_PERMISSIONS;
	status = sn_object_make(client, call->h_parent, &call->h_object, source->class_id, &object);
	if (status)
		return status;
	if (is_group) {
		object->gpu = source->gpu;
		object->group = source->group;
		object->group->duplicate = object;
		return GS_NV_OK;
	}
	kref_get(&source->memory->refs);
	object->memory = source->memory;
	return GS_NV_OK;
}

SN_HANDLER(sn_rm_dup, gs_nvos55, duplicate)

int sn_rm_free(struct sn_file *file, void *arg)
{
	struct gs_nvos00 *call = arg;
	struct sn_object *object = sn_find(call->h_root, call->h_object);

	if (!sn_client_of(file, call->h_root))
		call->status = GS_NV_ERR_INVALID_CLIENT;
	else if (!object)
		call->status = GS_NV_ERR_INVALID_OBJECT_HANDLE;
	else
		call->status = GS_NV_OK;
	if (!call->status)
		sn_object_free(object);
	return 0;
}

/* --- mapping -------------------------------------------------------------------------------- */

/* It prepares a control file, other than the client's own, for mmap(). */
static u32 map_memory(struct sn_file *file, const struct gs_nvos33_fd *call)
{
	struct sn_client *client = sn_client_of(file, call->h_client);
	struct sn_memory *memory;
	struct sn_file *target;
	struct file *holder;
	u32 status = GS_NV_ERR_INVALID_ARGUMENT;

	if (!client)
		return GS_NV_ERR_INVALID_CLIENT;
	memory = mapped_memory(client, call->h_memory);
	if (!memory || call->h_device != call->h_client || call->offset != 0 ||
	    call->length != memory->bytes)
		return GS_NV_ERR_INVALID_ARGUMENT;
	target = sn_file_get(call->fd, &holder);
	if (!target)
		return GS_NV_ERR_INVALID_ARGUMENT;
	if (target != file && target->minor == GS_NV_CTL_MINOR && !target->mapping) {
		kref_get(&memory->refs);
		smp_store_release(&target->mapping, memory); /* pairs with standin_mmap() */
		status = GS_NV_OK;
	}
	fput(holder);
	return status;
}

SN_HANDLER(sn_rm_map, gs_nvos33_fd, map_memory)
