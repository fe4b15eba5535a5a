// SPDX-License-Identifier: GPL-2.0
/* RM_CONTROL: a table with a row for each control, by the class of its object. */
#include <linux/delay.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "kept/carry.h"
#include "standin.h"

/* @object is of the row's class; @params is the caller's block, of the row's size. */
typedef u32 control_fn(struct sn_object *object, void *params);

/* --- on the client ------------------------------------------------------------------------- */

static u32 get_probed_ids(struct sn_object *object, void *params)
{
	struct gs_probed_ids *probed = params;
	unsigned int i;

	for (i = 0; i < GS_MAX_GPUS; i++) {
		probed->ids[i] = i < sn_gpu_count ? sn_gpus[i].id : GS_INVALID_GPU_ID;
		probed->excluded[i] = GS_INVALID_GPU_ID;
		probed->flags[i] = 0;
	}
	return GS_NV_OK;
}

static u32 attach_ids(struct sn_object *object, void *params)
{
	struct gs_attach_ids *attach = params;
	unsigned int i;

	for (i = 0; i < GS_MAX_GPUS && attach->ids[i] != GS_INVALID_GPU_ID; i++) {
		if (!sn_gpu_by_id(attach->ids[i])) {
			attach->failed_id = attach->ids[i];
			return GS_NV_ERR_INVALID_ARGUMENT;
		}
	}
	object->client->has_attached = true;
	return GS_NV_OK;
}

static u32 get_id_info(struct sn_object *object, void *params)
{
	struct gs_gpu_id_info *info = params;
	struct sn_gpu *gpu = sn_gpu_by_id(info->gpu_id);

	if (!gpu)
		return GS_NV_ERR_INVALID_ARGUMENT;
	info->device_instance = gpu->instance;
	return GS_NV_OK;
}

static u32 get_pci_info(struct sn_object *object, void *params)
{
	struct gs_pci_info *info = params;

	if (!sn_gpu_by_id(info->gpu_id))
		return GS_NV_ERR_INVALID_ARGUMENT;
	info->domain = 0;
	info->bus = info->gpu_id >> 8;
	info->slot = 0;
	return GS_NV_OK;
}

static u32 get_handle_info(struct sn_object *object, void *params)
{
	struct gs_handle_info *info = params;
	struct sn_object *asked = sn_find(object->handle, info->h_object);

	if (!asked)
		return GS_NV_ERR_INVALID_OBJECT_HANDLE;
	info->result = info->index == GS_HANDLE_INFO_PARENT ? asked->parent : asked->class_id;
	return GS_NV_OK;
}

/* Of any client, as the real one. */
static u32 get_access_rights(struct sn_object *object, void *params)
{
	struct gs_access_rights *asked = params;

	if (!sn_find(asked->h_client, asked->h_client))
		return GS_NV_ERR_INVALID_CLIENT;
	if (!sn_find(asked->h_client, asked->h_object))
		return GS_NV_ERR_OBJECT_NOT_FOUND;
	asked->rights = 0;
	return GS_NV_OK;
}

/* --- on a subdevice ------------------------------------------------------------------------ */

static u32 get_name(struct sn_object *object, void *params)
{
	struct gs_name_string *name = params;

	strscpy(name->ascii, "NVIDIA stand-in", sizeof(name->ascii));
	return GS_NV_OK;
}

static u32 get_gid(struct sn_object *object, void *params)
{
	struct gs_gid_info *gid = params;

	gid->length = scnprintf(gid->data, sizeof(gid->data),
				"GPU-00000000-0000-4000-8000-00000000%04x", object->gpu->id) + 1;
	return GS_NV_OK;
}

static u32 get_id(struct sn_object *object, void *params)
{
	((struct gs_gpu_id *)params)->gpu_id = object->gpu->id;
	return GS_NV_OK;
}

static u32 fb_get_info(struct sn_object *object, void *params)
{
	struct gs_fb_info *info = params;
	struct gs_info_entry __user *list = u64_to_user_ptr(info->p_list);
	struct gs_info_entry entry;
	u32 i;

	if (info->count > 64)
		return GS_NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < info->count; i++) {
		if (copy_from_user(&entry, &list[i], sizeof(entry)))
			return GS_NV_ERR_INVALID_ARGUMENT;
		entry.data = entry.index == GS_FB_INFO_TOTAL_RAM_SIZE ? sn_memory_bytes() >> 10 : 0;
		if (copy_to_user(&list[i], &entry, sizeof(entry)))
			return GS_NV_ERR_INVALID_ARGUMENT;
	}
	return GS_NV_OK;
}

static u32 get_sm_mappings(struct sn_object *object, void *params)
{
	((struct gs_sm_mappings *)params)->count = 132;
	return GS_NV_OK;
}

static u32 get_time(struct sn_object *object, void *params)
{
	((struct gs_gpu_time *)params)->ns = sn_gpu_time();
	return GS_NV_OK;
}

static u32 get_time_correlation(struct sn_object *object, void *params)
{
	struct gs_time_correlation *info = params;
	unsigned int i;

	if (info->cpu_clock != GS_CPU_CLOCK_OSTIME || info->samples > ARRAY_SIZE(info->sample))
		return GS_NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < info->samples; i++) {
		info->sample[i].cpu = ktime_get_real_ns();
		info->sample[i].gpu = sn_gpu_time();
	}
	return GS_NV_OK;
}

static struct sn_channel *find_channel(struct sn_gpu *gpu, u32 client, u32 handle)
{
	struct sn_object *object = sn_find(client, handle);

	if (!object || object->gpu != gpu || object->class_id <= 0xFF ||
	    (object->class_id & 0xFF) != GS_CHANNEL_CLASS_LOW_BYTE)
		return NULL;
	return object->channel;
}

/* The channels may be any program's, as on the real driver. It takes all of the list or nothing. */
static u32 disable_channels(struct sn_object *object, void *params)
{
	struct gs_disable_channels *list = params;
	struct sn_channel *channel;
	u32 i;

	if (list->count > GS_DISABLE_CHANNELS_MAX)
		return GS_NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < list->count; i++)
		if (!find_channel(object->gpu, list->clients[i], list->channels[i]))
			return GS_NV_ERR_INVALID_CHANNEL;
	sn_runlist_advance(object->gpu);
	for (i = 0; i < list->count; i++) {
		channel = find_channel(object->gpu, list->clients[i], list->channels[i]);
		if (list->disable)
			channel->freezes++;
		else if (channel->freezes)
			channel->freezes--;
	}
	sn_runlist_settle(object->gpu);
	return GS_NV_OK;
}

static u32 bind_switch_log(struct sn_object *object, void *params)
{
	struct gs_bind_switch_log *bind = params;
	struct sn_object *buffer = sn_find(object->client->handle, bind->h_buffer);

	if (!buffer || buffer->class_id != GS_CLASS_EVENT_BUFFER ||
	    buffer->buffer->gpu != object->gpu ||
	    bind->record_size != sizeof(struct gs_switch_record) ||
	    bind->level != GS_SWITCH_LOD_SIMPLE || !bind->all_users)
		return GS_NV_ERR_INVALID_ARGUMENT;
	buffer->buffer->is_bound = true;
	return GS_NV_OK;
}

/* NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE */
#define CTRL_SET_PREEMPTION_MODE 0x20801210u
#define PREEMPTION_SETS_COMPUTE 1u
struct preemption {
	u32 flags, h_channel, graphics_mode, compute_mode;
	u64 route[2];
};

static u32 set_preemption_mode(struct sn_object *object, void *params)
{
	const struct preemption *preemption = params;
	struct sn_channel *channel =
		find_channel(object->gpu, object->client->handle, preemption->h_channel);

	if (!channel)
		return GS_NV_ERR_INVALID_CHANNEL;
	if (preemption->flags & PREEMPTION_SETS_COMPUTE)
		channel->preemption = preemption->compute_mode;
	return GS_NV_OK;
}

/* --- on groups, channels, buffers ---------------------------------------------------------- */

static u32 schedule_group(struct sn_object *object, void *params)
{
	sn_runlist_advance(object->gpu);
	object->group->is_scheduled = *(u8 *)params != 0;
	return GS_NV_OK;
}

static u32 set_timeslice(struct sn_object *object, void *params)
{
	sn_runlist_advance(object->gpu);
	object->group->slice_us = ((struct gs_timeslice *)params)->us;
	return GS_NV_OK;
}

static u32 get_timeslice(struct sn_object *object, void *params)
{
	((struct gs_timeslice *)params)->us = object->group->slice_us;
	return GS_NV_OK;
}

static u32 preempt_group(struct sn_object *object, void *params)
{
	sn_runlist_advance(object->gpu);
	sn_runlist_preempt(object->group);
	return GS_NV_OK;
}

static u32 not_supported(struct sn_object *object, void *params)
{
	return GS_NV_ERR_NOT_SUPPORTED;
}

static u32 set_busy(struct sn_object *object, void *params)
{
	sn_runlist_advance(object->gpu);
	object->channel->is_busy = ((struct standin_busy *)params)->is_busy != 0;
	return GS_NV_OK;
}

static u32 enable_events(struct sn_object *object, void *params)
{
	struct gs_events_enable *enable = params;

	if (enable->flags != GS_EVENTS_KEEP_NEWEST)
		return GS_NV_ERR_INVALID_ARGUMENT;
	sn_runlist_advance(object->buffer->gpu);
	object->buffer->is_enabled = enable->enable != 0;
	return GS_NV_OK;
}

static u32 flush_events(struct sn_object *object, void *params)
{
	if (!object->buffer->is_bound || !object->buffer->is_enabled)
		return GS_NV_ERR_INVALID_STATE;
	sn_runlist_advance(object->buffer->gpu);
	sn_buffer_publish(object->buffer);
	return GS_NV_OK;
}

#define ANY_CHANNEL GS_CHANNEL_CLASS_LOW_BYTE
#define SCHEDULE_SIZE 2 /* bEnable, bSkipSubmit */
#define PREEMPT_SIZE 8  /* bWait, bManualTimeout, timeoutUs */

static const struct control {
	u32 command, class_id, size;
	control_fn *handle;
} controls[] = {
	{GS_CTRL_GPU_GET_PROBED_IDS, GS_CLASS_ROOT_CLIENT, sizeof(struct gs_probed_ids),
	 get_probed_ids},
	{GS_CTRL_GPU_ATTACH_IDS, GS_CLASS_ROOT_CLIENT, sizeof(struct gs_attach_ids), attach_ids},
	{GS_CTRL_GPU_GET_ID_INFO_V2, GS_CLASS_ROOT_CLIENT, sizeof(struct gs_gpu_id_info),
	 get_id_info},
	{GS_CTRL_GPU_GET_PCI_INFO, GS_CLASS_ROOT_CLIENT, sizeof(struct gs_pci_info), get_pci_info},
	{GS_CTRL_CLIENT_GET_HANDLE_INFO, GS_CLASS_ROOT_CLIENT, sizeof(struct gs_handle_info),
	 get_handle_info},
	{GS_CTRL_CLIENT_GET_ACCESS_RIGHTS, GS_CLASS_ROOT_CLIENT, sizeof(struct gs_access_rights),
	 get_access_rights},
	{CARRY_CTRL_EXPORT_ONE, GS_CLASS_ROOT_CLIENT, sizeof(struct carry_export_one),
	 sn_export_object},
	{CARRY_CTRL_IMPORT_ONE, GS_CLASS_ROOT_CLIENT, sizeof(struct carry_import_one),
	 sn_import_object},
	{CARRY_CTRL_EXPORT, GS_CLASS_ROOT_CLIENT, sizeof(struct carry_export), sn_export_objects},
	{CARRY_CTRL_IMPORT, GS_CLASS_ROOT_CLIENT, sizeof(struct carry_import), sn_import_objects},
	{GS_CTRL_GPU_GET_NAME_STRING, GS_CLASS_SUBDEVICE, sizeof(struct gs_name_string), get_name},
	{GS_CTRL_GPU_GET_GID_INFO, GS_CLASS_SUBDEVICE, sizeof(struct gs_gid_info), get_gid},
	{GS_CTRL_GPU_GET_ID, GS_CLASS_SUBDEVICE, sizeof(struct gs_gpu_id), get_id},
	{GS_CTRL_FB_GET_INFO, GS_CLASS_SUBDEVICE, sizeof(struct gs_fb_info), fb_get_info},
	{GS_CTRL_GR_SM_MAPPINGS, GS_CLASS_SUBDEVICE, sizeof(struct gs_sm_mappings),
	 get_sm_mappings},
	{GS_CTRL_TIMER_GET_TIME, GS_CLASS_SUBDEVICE, sizeof(struct gs_gpu_time), get_time},
	{GS_CTRL_TIMER_GPU_CPU_CORRELATION, GS_CLASS_SUBDEVICE, sizeof(struct gs_time_correlation),
	 get_time_correlation},
	{GS_CTRL_DISABLE_CHANNELS, GS_CLASS_SUBDEVICE, sizeof(struct gs_disable_channels),
	 disable_channels},
	{GS_CTRL_GR_BIND_SWITCH_LOG, GS_CLASS_SUBDEVICE, sizeof(struct gs_bind_switch_log),
	 bind_switch_log},
	{CTRL_SET_PREEMPTION_MODE, GS_CLASS_SUBDEVICE, sizeof(struct preemption),
	 set_preemption_mode},
	{GS_CTRL_GROUP_SCHEDULE, GS_CLASS_CHANNEL_GROUP, SCHEDULE_SIZE, schedule_group},
	{GS_CTRL_SET_TIMESLICE, GS_CLASS_CHANNEL_GROUP, sizeof(struct gs_timeslice), set_timeslice},
	{GS_CTRL_GET_TIMESLICE, GS_CLASS_CHANNEL_GROUP, sizeof(struct gs_timeslice), get_timeslice},
	{GS_CTRL_GROUP_PREEMPT, GS_CLASS_CHANNEL_GROUP, PREEMPT_SIZE, preempt_group},
	{GS_CTRL_SET_INTERLEAVE, GS_CLASS_CHANNEL_GROUP, sizeof(u32), not_supported},
	{STANDIN_CTRL_SET_BUSY, ANY_CHANNEL, sizeof(struct standin_busy), set_busy},
	{GS_CTRL_EVENTS_ENABLE, GS_CLASS_EVENT_BUFFER, sizeof(struct gs_events_enable),
	 enable_events},
	{GS_CTRL_EVENTS_FLUSH, GS_CLASS_EVENT_BUFFER, 0, flush_events},
};

#define PARAMS_MAX 4096

static const struct control *find_control(u32 command, u32 class_id)
{
	size_t i;

	if (class_id == GS_CLASS_ROOT || class_id == GS_CLASS_ROOT_NON_PRIV)
		class_id = GS_CLASS_ROOT_CLIENT;
	if (class_id > 0xFF && (class_id & 0xFF) == GS_CHANNEL_CLASS_LOW_BYTE)
		class_id = ANY_CHANNEL;
	for (i = 0; i < ARRAY_SIZE(controls); i++)
		if (controls[i].command == command && controls[i].class_id == class_id)
			return &controls[i];
	return NULL;
}

static u32 control(struct sn_file *file, const struct gs_nvos54 *call)
{
	struct sn_object *object = sn_find(call->h_client, call->h_object);
	void *user = (void *)(unsigned long)call->p_params, *params = NULL;
	const struct control *control;
	u32 status = GS_NV_OK;

	if (!sn_client_of(file, call->h_client))
		return GS_NV_ERR_INVALID_CLIENT;
	if (!object)
		return GS_NV_ERR_INVALID_OBJECT_HANDLE;
	control = find_control(call->cmd, object->class_id);
	if (object->class_id == GS_CLASS_CHANNEL_GROUP && !object->group)
		return GS_NV_ERR_INVALID_OBJECT_HANDLE;
	if (!control)
		return GS_NV_ERR_NOT_SUPPORTED;
	if (control->size != call->params_size || control->size > PARAMS_MAX)
		return GS_NV_ERR_INVALID_ARGUMENT;
	if (control->size) {
		params = kmalloc(control->size, GFP_KERNEL);
		if (!params)
			return GS_NV_ERR_NO_MEMORY;
		if (sn_params_delay_ms)
			msleep_interruptible(sn_params_delay_ms);
		status = os_memcpy_from_user(params, user, control->size);
	}
	if (!status)
		status = control->handle(object, params);
	if (!status && control->size)
		status = os_memcpy_to_user(user, params, control->size);
	kfree(params);
	return status;
}

SN_HANDLER(sn_rm_control, gs_nvos54, control)
