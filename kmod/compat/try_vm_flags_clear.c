// SPDX-License-Identifier: GPL-2.0
/* vm_flags_clear() (6.3) is there. */
#include <linux/mm.h>

void gs_try(struct vm_area_struct *vma);
void gs_try(struct vm_area_struct *vma)
{
	vm_flags_clear(vma, VM_MAYWRITE);
}
