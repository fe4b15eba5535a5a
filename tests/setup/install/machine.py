# SPDX-License-Identifier: Apache-2.0
"""A minimal machine of a release: what debootstrap makes, with systemd as its first process, in namespaces of its own over an
overlay. It shares the kernel and the network with this machine, and nothing else: nothing outside of it changes.

base() makes the root once and keeps it; a Machine is a copy of it that goes when the script ends.
"""
import os
import pathlib
import shutil
import subprocess
import time

# What every server has and debootstrap leaves out. There is no procps, curl or git: what gpushare needs it must say.
SERVER = "systemd systemd-sysv dbus udev kmod sudo man-db iproute2"
SCRIPTS = {"noble": "gutsy"}  # debootstrap of Debian 12 does not know the newest releases of Ubuntu, which are made as older ones
MIRRORS = {"noble": "http://archive.ubuntu.com/ubuntu"}
GROUP = "gpushare-install-test"
BOOT = r"""
set -e
base=$1 work=$2 archives=$3
m=$work/root
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$base,upperdir=$work/upper,workdir=$work/scratch" "$m"
mount -t proc proc "$m/proc"
mount -t sysfs -o ro sysfs "$m/sys"
mount -t cgroup2 cgroup2 "$m/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$m/dev"
for device in null zero full random urandom tty; do touch "$m/dev/$device"; mount --bind "/dev/$device" "$m/dev/$device"; done
ln -s /proc/self/fd "$m/dev/fd"
mkdir "$m/dev/shm" "$m/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$m/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$m/dev/pts"
ln -s pts/ptmx "$m/dev/ptmx"
mount -t tmpfs -o mode=755 tmpfs "$m/run"
mount --bind "$archives" "$m/var/cache/apt/archives"
if [ -n "$4" ]; then mkdir -p "$m/ccache"; mount --bind "$4" "$m/ccache"; fi
exec chroot "$m" env -i container=gpushare PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --show-status=no
"""


def missing():
    """Returns why no machine can be made here, or None."""
    if os.geteuid() != 0:
        return "only root may make a root"
    for program, package in (("debootstrap", "debootstrap"), ("unshare", "util-linux"), ("dpkg-deb", "dpkg")):
        if not shutil.which(program):
            return "%s is missing (package %s)" % (program, package)
    if not cgroup_root():
        return "no cgroup v2 is mounted"
    return None


def cgroup_root():
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            return pathlib.Path(line.split()[1])
    return None


def base(release, folder):
    """Returns the root of the release below `folder`, made if it is not there; it takes one to two minutes."""
    root = pathlib.Path(folder) / release
    if (root / "made").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    words = ["debootstrap", "--variant=minbase"]
    if release in MIRRORS:
        words += ["--components=main,universe"]
        if not pathlib.Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg").exists():
            words += ["--no-check-gpg"]
    words += [release, str(root), MIRRORS.get(release, "http://deb.debian.org/debian")]
    words += [SCRIPTS[release]] if release in SCRIPTS else []
    with (root.parent / (release + ".log")).open("w") as log:
        subprocess.run(words, stdout=log, stderr=log, check=True)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        install = "apt-get update && apt-get install -y --no-install-recommends " + SERVER + " && apt-get clean"
        subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", 'mount -t proc proc "$0/proc" && exec chroot "$0" sh -c "$1"',
                        root, install], env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"},
                       stdout=log, stderr=log, check=True)
    (root / "etc/apt/apt.conf.d/00test").write_text('APT::Get::Assume-Yes "true";\nAPT::Install-Recommends "false";\n')
    (root / "etc/dpkg/dpkg.cfg.d").mkdir(parents=True, exist_ok=True)
    (root / "etc/dpkg/dpkg.cfg.d/test").write_text("force-unsafe-io\n")
    if release in MIRRORS:  # without its updates it lacks compilers
        (root / "etc/apt/sources.list.d/updates.list").write_text("deb %s %s-updates main universe\n" % (MIRRORS[release], release))
    (root / "made").touch()
    return root


class Machine:
    """Booted when it is made. `ccache`: a folder of ccache's that compilers in it use, or None."""

    def __init__(self, root, work, ccache=None):
        self.work = pathlib.Path(work)
        shutil.rmtree(self.work, ignore_errors=True)
        for name in "upper", "scratch", "root":
            (self.work / name).mkdir(parents=True)
        archives = root.parent / (root.name + ".archives")
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "TERM": "xterm",
                            "DEBIAN_FRONTEND": "noninteractive", "COLUMNS": "80"}
        if ccache:
            self.environment["CCACHE_DIR"] = "/ccache"
        self.group = cgroup_root() / (GROUP + ".%d" % os.getpid())
        self.group.mkdir(exist_ok=True)
        own = pathlib.Path("/proc/self/cgroup").read_text().split("0::", 1)[1].split("\n")[0]
        (self.group / "cgroup.procs").write_text(str(os.getpid()))
        # Should this script be killed, the machine and its mounts go, too.
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child", "bash", "-c",
                                         BOOT, "boot", root, self.work, archives, ccache or ""], stdin=subprocess.DEVNULL)
        (cgroup_root() / own.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
        self.init = None
        for _ in range(600):
            children = pathlib.Path("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid))
            self.init = children.read_text().split()[0] if children.exists() and children.read_text() else None
            # While the root is not there yet, it cannot be entered.
            if self.init and self.run("systemctl is-system-running", check=False).stdout.strip() in ("running", "degraded"):
                return
            time.sleep(0.1)
        self.stop()
        raise AssertionError("systemd does not come up")

    def path(self, inside):
        """A file of the machine, seen from outside."""
        return pathlib.Path("/proc/%s/root" % self.init) / inside.lstrip("/")

    def run(self, command, user="root", folder="/", limit_s=3600, check=True, log=None):
        """Runs the shell's command. `log`: a file for its output, which is otherwise the result's stdout."""
        home = "/root" if user == "root" else "/home/" + user
        words = ["nsenter", "--all", "--root", "-t", self.init, "env", "-i", "--chdir=/"]
        environment = {**self.environment, "HOME": home, "USER": user}
        if user != "root":  # of root's compiler cache others only read
            environment.update(CCACHE_READONLY="1", CCACHE_TEMPDIR="/tmp")
        words += ["%s=%s" % pair for pair in environment.items()]
        words += ["setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user != "root" else []
        words += ["bash", "-c", 'cd "$0" && eval "$1"', folder, command]
        said = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=log or subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=limit_s)
        if check:
            assert said.returncode == 0, "%s: status %d\n%s" % (command, said.returncode, said.stdout or "")
        return said

    def stop(self):
        self.process.kill()
        self.process.wait()
        for _ in range(100):
            try:
                for folder, _, _ in os.walk(self.group, topdown=False):
                    os.rmdir(folder)
                break
            except OSError:
                time.sleep(0.1)
        shutil.rmtree(self.work, ignore_errors=True)
