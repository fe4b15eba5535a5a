/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Small copies from and to the caller's memory, word by word. A call of the kernel's own function
 * would cost several times as much for about ten words.
 */
#ifndef GPUSHARE_USER_H
#define GPUSHARE_USER_H

#include <linux/uaccess.h>

/**
 * gs_user_read() - Copy from the caller's memory; it may sleep.
 * @to: Our memory, aligned to 8 bytes.
 * @from: The caller's memory.
 * @bytes: A small number.
 *
 * Return: 0 or -EFAULT.
 */
static __always_inline int gs_user_read(void *to, const void __user *from, unsigned long bytes)
{
	unsigned long at = 0;

	if (!user_read_access_begin(from, bytes))
		return -EFAULT;
#pragma GCC unroll 4
	for (; at + 2 * sizeof(u64) <= bytes; at += 2 * sizeof(u64)) {
		unsafe_get_user(*(u64 *)(to + at), (const u64 __user *)(from + at), fault);
		unsafe_get_user(*(u64 *)(to + at + sizeof(u64)),
				(const u64 __user *)(from + at + sizeof(u64)), fault);
	}
	for (; at + sizeof(u64) <= bytes; at += sizeof(u64))
		unsafe_get_user(*(u64 *)(to + at), (const u64 __user *)(from + at), fault);
	for (; at + sizeof(u32) <= bytes; at += sizeof(u32))
		unsafe_get_user(*(u32 *)(to + at), (const u32 __user *)(from + at), fault);
	for (; at < bytes; at++)
		unsafe_get_user(*(u8 *)(to + at), (const u8 __user *)(from + at), fault);
	user_read_access_end();
	return 0;

fault:
	user_read_access_end();
	return -EFAULT;
}

/**
 * gs_user_write() - Copy to the caller's memory; it may sleep.
 * @to: The caller's memory.
 * @from: Our memory, aligned to 8 bytes.
 * @bytes: A small number.
 *
 * Return: 0 or -EFAULT.
 */
static __always_inline int gs_user_write(void __user *to, const void *from, unsigned long bytes)
{
	unsigned long at = 0;

	if (!user_write_access_begin(to, bytes))
		return -EFAULT;
#pragma GCC unroll 4
	for (; at + 2 * sizeof(u64) <= bytes; at += 2 * sizeof(u64)) {
		unsafe_put_user(*(const u64 *)(from + at), (u64 __user *)(to + at), fault);
		unsafe_put_user(*(const u64 *)(from + at + sizeof(u64)),
				(u64 __user *)(to + at + sizeof(u64)), fault);
	}
	for (; at + sizeof(u64) <= bytes; at += sizeof(u64))
		unsafe_put_user(*(const u64 *)(from + at), (u64 __user *)(to + at), fault);
	for (; at + sizeof(u32) <= bytes; at += sizeof(u32))
		unsafe_put_user(*(const u32 *)(from + at), (u32 __user *)(to + at), fault);
	for (; at < bytes; at++)
		unsafe_put_user(*(const u8 *)(from + at), (u8 __user *)(to + at), fault);
	user_write_access_end();
	return 0;

fault:
	user_write_access_end();
	return -EFAULT;
}

#endif /* GPUSHARE_USER_H */
