#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The guest's first process sets up what a program expects of a machine, runs the test, and switches off.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t debugfs debugfs /sys/kernel/debug
ln -s /proc/self/fd /dev/fd
echo 'root:x:0:0:root:/root:/bin/sh
alice:x:1000:1000:alice:/root:/bin/sh
bob:x:1001:1001:bob:/root:/bin/sh' >/etc/passwd
echo 'root:x:0:
gpushare:x:998:bob
alice:x:1000:
bob:x:1001:' >/etc/group
export PATH=/test:/bin:/sbin HOME=/root
stty -F /dev/ttyS1 -opost
cd /test
leaks=/sys/kernel/debug/kmemleak
[ ! -e $leaks ] || echo clear >$leaks # those of the kernel's own start
sh /test/run.sh >/dev/ttyS1 2>&1 </dev/null
code=$?
# A kernel with kmemleak looks for lost memory when everything has ended, and again without the modules.
# It passes over what is younger than 5 s; the second look may find what a stale pointer held before.
look_for_leaks() {
  sleep 6
  echo scan >$leaks
  echo scan >$leaks
  cat $leaks >/dev/ttyS0
  echo clear >$leaks
}
if [ -e $leaks ]; then
  kill -9 -1
  look_for_leaks
  rmmod gpushare
  rmmod nvidia
  look_for_leaks
  echo "guest: looked for leaks" >/dev/ttyS1
fi 2>/dev/null
echo "guest: end $code" >/dev/ttyS1
sync
poweroff -f
