// SPDX-License-Identifier: GPL-2.0
/* The device files and their ioctl entry. */
#include <linux/cdev.h>
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "standin.h"

#define ARGUMENT_MAX 4096
#define ERR_INVALID_ADDRESS 0x1Eu

DEFINE_MUTEX(sn_lock);
struct sn_gpu sn_gpus[SN_MAX_GPUS];
u64 sn_calls;

unsigned int sn_gpu_count = 1;
module_param_named(gpus, sn_gpu_count, uint, 0444);
MODULE_PARM_DESC(gpus, "Number of GPUs, 1 to 4 (1)");

char *sn_version = "580.142";
module_param_named(version, sn_version, charp, 0444);
MODULE_PARM_DESC(version, "Answer to CHECK_VERSION (580.142)");

static unsigned int memory_mib = 1024;
module_param(memory_mib, uint, 0444);
MODULE_PARM_DESC(memory_mib, "Video memory of each GPU in MiB (1024)");

static unsigned int delay_ms;
module_param(delay_ms, uint, 0644);
MODULE_PARM_DESC(delay_ms, "Every call sleeps so long in the driver, unless a signal comes (0)");

static unsigned int answer_delay_ms;
module_param(answer_delay_ms, uint, 0644);
MODULE_PARM_DESC(answer_delay_ms, "Time before the answer is written, unless a signal comes (0)");

static unsigned int delays_ended;
module_param(delays_ended, uint, 0644);
MODULE_PARM_DESC(delays_ended, "Another number ends those two delays of the calls in the driver (0)");

bool sn_is_shared;
module_param_named(is_shared, sn_is_shared, bool, 0644);
MODULE_PARM_DESC(is_shared, "All memory was shared with every process, for duplicates (0)");

unsigned int sn_params_delay_ms;
module_param_named(params_delay_ms, sn_params_delay_ms, uint, 0644);
MODULE_PARM_DESC(params_delay_ms, "Time before parameters of an allocation are read (0)");

u64 sn_memory_bytes(void)
{
	return (u64)memory_mib << 20;
}

/* The GPU of which the number at this offset is @number. */
static struct sn_gpu *gpu_with(size_t offset, u32 number)
{
	unsigned int i;

	for (i = 0; i < sn_gpu_count; i++)
		if (*(u32 *)((char *)&sn_gpus[i] + offset) == number)
			return &sn_gpus[i];
	return NULL;
}

struct sn_gpu *sn_gpu_by_id(u32 id)
{
	return gpu_with(offsetof(struct sn_gpu, id), id);
}

struct sn_gpu *sn_gpu_by_instance(u32 instance)
{
	return gpu_with(offsetof(struct sn_gpu, instance), instance);
}

/* --- calls ---------------------------------------------------------------------------------- */

static int check_version(struct sn_file *file, void *arg)
{
	struct gs_nv_version *version = arg;

	version->reply = 1;
	strscpy(version->text, sn_version, sizeof(version->text));
	return 0;
}

/*
 * These have the names of the real driver's functions, by which RM copies the parameters of every
 * caller. No hook would find another place for that.
 */
noinline u32 os_memcpy_from_user(void *to, const void *from, u32 bytes)
{
	return copy_from_user(to, (const void __user *)from, bytes) ? ERR_INVALID_ADDRESS : GS_NV_OK;
}

noinline u32 os_memcpy_to_user(void *to, const void *from, u32 bytes)
{
	return copy_to_user((void __user *)to, from, bytes) ? ERR_INVALID_ADDRESS : GS_NV_OK;
}

/*
 * Lets a file, of a GPU or a control file, speak for the clients of a control file, which is kept
 * open as long as this one. As in RM (escape.c) a file is registered once, and neither to itself nor
 * to one that is registered.
 */
static int register_fd(struct sn_file *file, void *arg)
{
	struct file *holder;
	struct sn_file *control = sn_file_get(*(s32 *)arg, &holder);

	if (!control)
		return -EINVAL;
	if (file->control || control == file || control->control ||
	    control->minor != GS_NV_CTL_MINOR) {
		fput(holder);
		return -EINVAL;
	}
	file->control = control;
	file->control_holder = holder;
	return 0;
}

struct card_info { /* nv_ioctl_card_info_t */
	u8 valid, pad0[3];
	u32 domain;
	u8 bus, slot, function, pad1;
	u16 vendor, device;
	u32 pad2, gpu_id;
	u16 interrupt_line, pad3[3];
	u64 registers, registers_bytes, memory, memory_bytes;
	u32 minor;
	u8 name[10], pad4[2];
};

static int card_info(struct sn_file *file, void *arg)
{
	struct card_info *cards = arg;
	unsigned int i;

	memset(cards, 0, 32 * sizeof(*cards));
	for (i = 0; i < sn_gpu_count; i++) {
		cards[i].valid = 1;
		cards[i].bus = sn_gpus[i].id >> 8;
		cards[i].vendor = 0x10de;
		cards[i].gpu_id = sn_gpus[i].id;
		cards[i].memory_bytes = sn_memory_bytes();
		cards[i].minor = sn_gpus[i].minor;
	}
	return 0;
}

/*
 * The driver knows a command by its number and the exact size of its argument, not by its type. It
 * takes nearly all of them on a control file only. To what it refuses here it gives no answer: the
 * status in the argument stays what the caller has put there.
 */
enum where { ON_CONTROL, ON_GPU, ON_BOTH };
#define HEAP_BYTES 184 /* NVOS32_PARAMETERS */

static const struct sn_call {
	u32 nr, size;
	enum where where;
	int (*handle)(struct sn_file *file, void *arg); /* 0, or a negative errno */
} sn_call_table[] = {
	{GS_NV_ESC_RM_ALLOC_MEMORY, sizeof(struct gs_nvos02_fd), ON_GPU, sn_rm_alloc_memory},
	{GS_NV_ESC_RM_ALLOC_OBJECT, sizeof(struct gs_nvos05), ON_CONTROL, sn_rm_alloc_object},
	{GS_NV_ESC_RM_FREE, sizeof(struct gs_nvos00), ON_CONTROL, sn_rm_free},
	{GS_NV_ESC_RM_CONTROL, sizeof(struct gs_nvos54), ON_CONTROL, sn_rm_control},
	{GS_NV_ESC_RM_ALLOC, sizeof(struct gs_nvos64), ON_CONTROL, sn_rm_alloc},
	{GS_NV_ESC_RM_ALLOC, sizeof(struct gs_nvos21), ON_CONTROL, sn_rm_alloc21},
	{GS_NV_ESC_RM_DUP_OBJECT, sizeof(struct gs_nvos55), ON_CONTROL, sn_rm_dup},
	{GS_NV_ESC_RM_VID_HEAP_CONTROL, HEAP_BYTES, ON_CONTROL, sn_rm_heap},
	{GS_NV_ESC_RM_MAP_MEMORY, sizeof(struct gs_nvos33_fd), ON_CONTROL, sn_rm_map},
	{GS_NV_ESC_REGISTER_FD, sizeof(s32), ON_BOTH, register_fd},
};

/* The real driver answers these itself, before it would enter RM (nv.c). */
static const struct sn_call early_call_table[] = {
	{GS_NV_ESC_CARD_INFO, 32 * sizeof(struct card_info), ON_CONTROL, card_info},
	{DMA_BUF_ESC_EXPORT, sizeof(struct dma_buf_export), ON_GPU, sn_export_dma_buf},
	{GS_NV_ESC_CHECK_VERSION_STR, sizeof(struct gs_nv_version), ON_CONTROL, check_version},
};

static const struct sn_call *find_call(const struct sn_call *table, size_t count,
				       const struct sn_file *file, u32 nr, u32 size)
{
	enum where where = file->minor == GS_NV_CTL_MINOR ? ON_CONTROL : ON_GPU;
	size_t i;

	for (i = 0; i < count; i++)
		if (table[i].nr == nr && table[i].size == size &&
		    (table[i].where == where || table[i].where == ON_BOTH))
			return &table[i];
	return NULL;
}

/*
 * The real driver enters RM here; `arg` is its own copy of the argument. It returns RM's status. It
 * is built without ftrace's entry, as the real one is.
 */
u32 rm_ioctl(void *stack, void *gpu, struct sn_file *file, u32 nr, void *arg, u32 size);
noinline notrace u32 rm_ioctl(void *stack, void *gpu, struct sn_file *file, u32 nr, void *arg, u32 size)
{
	const struct sn_call *call =
		find_call(sn_call_table, ARRAY_SIZE(sn_call_table), file, nr, size);
	int err = -EINVAL;

	mutex_lock(&sn_lock);
	sn_calls++;
	if (call)
		err = call->handle(file, arg);
	mutex_unlock(&sn_lock);
	return err ? GS_NV_ERR_INVALID_ARGUMENT : GS_NV_OK;
}

static void sleep_in_call(unsigned int ms)
{
	const unsigned long end = jiffies + msecs_to_jiffies(ms);
	const unsigned int before = READ_ONCE(delays_ended);

	while (time_before(jiffies, end) && READ_ONCE(delays_ended) == before)
		if (msleep_interruptible(min(ms, 10U)))
			return;
}

static long do_ioctl(struct sn_file *file, u32 nr, u32 size, void __user *user)
{
	const struct sn_call *early =
		find_call(early_call_table, ARRAY_SIZE(early_call_table), file, nr, size);
	void *arg;
	long ret;

	if (size > ARGUMENT_MAX)
		return -EINVAL;
	sleep_in_call(delay_ms);
	arg = memdup_user(user, size);
	if (IS_ERR(arg))
		return PTR_ERR(arg);
	if (early)
		ret = early->handle(file, arg);
	else
		ret = rm_ioctl(NULL, NULL, file, nr, arg, size) == GS_NV_OK ? 0 : -EINVAL;
	sleep_in_call(answer_delay_ms);
	if (copy_to_user(user, arg, size))
		ret = -EFAULT;
	kfree(arg);
	return ret;
}

static __always_inline long driver_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct gs_nv_xfer xfer;

	if (_IOC_NR(cmd) != GS_NV_ESC_IOCTL_XFER_CMD)
		return do_ioctl(file->private_data, _IOC_NR(cmd), _IOC_SIZE(cmd),
				(void __user *)arg);
	if (_IOC_SIZE(cmd) != sizeof(xfer))
		return -EINVAL;
	if (copy_from_user(&xfer, (void __user *)arg, sizeof(xfer)))
		return -EFAULT;
	return do_ioctl(file->private_data, xfer.cmd, xfer.size, u64_to_user_ptr(xfer.ptr));
}

/*
 * Hooks look for this function of the real driver by its name. Up to 535 there is another one for
 * 32-bit programs, which does not call the first; later it is the same.
 */
long STANDIN_ENTRY(struct file *file, unsigned int cmd, unsigned long arg);
noinline long STANDIN_ENTRY(struct file *file, unsigned int cmd, unsigned long arg)
{
	return driver_ioctl(file, cmd, arg);
}

#ifdef STANDIN_COMPAT_ENTRY
long STANDIN_COMPAT_ENTRY(struct file *file, unsigned int cmd, unsigned long arg);
noinline long STANDIN_COMPAT_ENTRY(struct file *file, unsigned int cmd, unsigned long arg)
{
	return driver_ioctl(file, cmd, arg);
}
#else
#define STANDIN_COMPAT_ENTRY STANDIN_ENTRY
#endif

/* --- files ---------------------------------------------------------------------------------- */

/* This is a function of the real driver too, and so is nvidia_close(). */
static noinline int nvidia_open(struct inode *inode, struct file *file)
{
	unsigned int minor = iminor(inode);
	struct sn_file *ours;

	if (minor != GS_NV_CTL_MINOR && minor >= sn_gpu_count)
		return -ENODEV;
	ours = kzalloc(sizeof(*ours), GFP_KERNEL);
	if (!ours)
		return -ENOMEM;
	ours->minor = minor;
	INIT_LIST_HEAD(&ours->clients);
	file->private_data = ours;
	return 0;
}

static noinline int nvidia_close(struct inode *inode, struct file *file)
{
	struct sn_file *ours = file->private_data;

	mutex_lock(&sn_lock);
	sn_file_free_clients(ours);
	sn_file_empty(ours);
	if (ours->mapping)
		sn_memory_put(ours->mapping);
	mutex_unlock(&sn_lock);
	if (ours->control_holder)
		fput(ours->control_holder);
	kfree(ours);
	return 0;
}

static int standin_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct sn_file *ours = file->private_data;
	struct sn_memory *memory = smp_load_acquire(&ours->mapping); /* pairs with sn_rm_map() */

	if (!memory || vma->vm_end - vma->vm_start != PAGE_ALIGN(memory->bytes) ||
	    vma->vm_flags & VM_WRITE)
		return -EINVAL;
	return remap_vmalloc_range(vma, memory->pages, 0);
}

static const struct file_operations standin_fops = {
	.owner = THIS_MODULE,
	.open = nvidia_open,
	.release = nvidia_close,
	.unlocked_ioctl = STANDIN_ENTRY,
	.compat_ioctl = STANDIN_COMPAT_ENTRY,
	.mmap = standin_mmap,
};

struct sn_file *sn_file_get(int fd, struct file **file)
{
	*file = fget(fd);
	if (*file && (*file)->f_op == &standin_fops)
		return (*file)->private_data;
	if (*file)
		fput(*file);
	return NULL;
}

static int __init standin_init(void)
{
	unsigned int i;
	int err;

	if (sn_gpu_count < 1 || sn_gpu_count > SN_MAX_GPUS || memory_mib == 0)
		return -EINVAL;
	for (i = 0; i < sn_gpu_count; i++) {
		sn_gpus[i].minor = i;
		sn_gpus[i].instance = sn_gpu_count - 1 - i; /* minors in reverse, as was seen */
		sn_gpus[i].id = 0x1b00 + 0x2800 * i;
		INIT_LIST_HEAD(&sn_gpus[i].buffers);
		sn_runlist_init(&sn_gpus[i].runlist);
	}
	err = sn_report_init();
	if (err)
		return err;
	err = register_chrdev(GS_NV_MAJOR, "nvidia", &standin_fops);
	if (err)
		sn_report_exit();
	return err;
}

static void __exit standin_exit(void)
{
	unregister_chrdev(GS_NV_MAJOR, "nvidia");
	sn_report_exit();
}

module_init(standin_init);
module_exit(standin_exit);
MODULE_DESCRIPTION("Stand-in for the NVIDIA driver, for gpushare's tests");
MODULE_LICENSE("GPL");
