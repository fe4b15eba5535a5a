// SPDX-License-Identifier: GPL-2.0
/*
 * The attribute procs of a tenant. A list may be longer than the page that other attributes have,
 * so it is a binary attribute: each read makes the text anew, and copies the part that is asked
 * for.
 */
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "compat/version.h"
#include "members/attach.h"
#include "members/process.h"
#include "members/tenant.h"
#include "sysfs/sysfs.h"

#define GS_PID_CHARS 11 /* ten digits and the newline */

/* The number of bytes that the text of a tenant's pids takes at most. */
static size_t gs_procs_bytes(const struct gs_tenant *tenant)
{
	return 1 + tenant->processes_count * GS_PID_CHARS;
}

/* Writes all pids, one a line, as the caller's pid namespace has them. Returns the length. */
static size_t gs_procs_write_text(const struct gs_tenant *tenant, char *text, size_t bytes)
{
	struct gs_process *process;
	size_t len = 0;
	pid_t pid;

	lockdep_assert_held(&gs_lock);
	list_for_each_entry(process, &tenant->processes, tenant_node) {
		pid = process->is_gone ? 0 : pid_vnr(process->id.pid);
		if (pid)
			len += scnprintf(text + len, bytes - len, "%d\n", pid);
	}
	return len;
}

/* The text of all pids, or ERR_PTR(-ENOMEM). If there are more by now it begins again. */
static char *gs_procs_text(const struct gs_tenant *tenant, size_t *len)
{
	size_t bytes = 0, wanted;
	char *text = NULL;

	mutex_lock(&gs_lock);
	while ((wanted = gs_procs_bytes(tenant)) > bytes) {
		mutex_unlock(&gs_lock);
		kvfree(text);
		bytes = wanted + GS_PID_CHARS * 16; /* some may come meanwhile */
		text = kvmalloc(bytes, GFP_KERNEL);
		if (!text)
			return ERR_PTR(-ENOMEM);
		mutex_lock(&gs_lock);
	}
	*len = gs_procs_write_text(tenant, text, bytes);
	mutex_unlock(&gs_lock);
	return text;
}

static ssize_t gs_procs_read(struct file *file, struct kobject *kobj,
			     gs_const_bin struct bin_attribute *attr, char *buf, loff_t at,
			     size_t count)
{
	struct gs_tenant *tenant = container_of(kobj, struct gs_tenant, kobj);
	ssize_t copied;
	size_t len;
	char *text;

	text = gs_procs_text(tenant, &len);
	if (IS_ERR(text))
		return PTR_ERR(text);
	copied = memory_read_from_buffer(buf, count, &at, text, len);
	kvfree(text);
	return copied;
}

static ssize_t gs_procs_write(struct file *file, struct kobject *kobj,
			      gs_const_bin struct bin_attribute *attr, char *buf, loff_t at,
			      size_t count)
{
	struct gs_tenant *tenant = container_of(kobj, struct gs_tenant, kobj);
	size_t len = gs_line_length(buf, count);
	u32 pid;
	int err;

	if (at)
		return -EINVAL;
	err = gs_parse_ranged(buf, len, 1, INT_MAX, &pid);
	if (!err)
		err = gs_process_attach(file, pid, tenant);
	if (err)
		return err;
	sysfs_notify(kobj, NULL, attr->attr.name);
	return count;
}

struct bin_attribute gs_tenant_procs = {
	.attr = { .name = "procs", .mode = 0644 },
	.read = gs_procs_read,
	.write = gs_procs_write,
};
