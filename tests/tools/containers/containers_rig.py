# SPDX-License-Identifier: Apache-2.0
"""A machine for containers: podman, runc, dockerd, containerd and systemd as they are installed, an agent, and a simulated GPU.

It lives in namespaces of its own (enter() starts the script again in them): what the engines keep is in file systems in memory,
below /mnt, /run and /var/lib, their control groups are below one that goes when the script has ended, and so does all that was started.
Only version 2 of control groups is mounted, without network.
"""
import ctypes
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "slurm"))
import cases  # noqa: E402,F401
from slurm_rig import NAMESPACES, WORK, bring_up_loopback, until  # noqa: E402

CGROUPS = pathlib.Path("/sys/fs/cgroup")
GROUP = "gpushare-containers-test"
IMAGE = "localhost/gpushare-test:1"
SPEC = "/var/run/cdi/gpushare.json"
KEPT = ("/run", "/etc/docker", "/etc/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/containerd", "/var/tmp", "/dev/shm")
# What a container sees of this machine: its libraries, the programs, and the simulated GPU's socket.
SEEN = ("/usr", "/mnt/build", "/mnt/sim")
ENVIRONMENT = ("GPUSHARE_SIM=/mnt/sim/socket", "LD_LIBRARY_PATH=/mnt/build/lib/sim")
PROGRAM = ["/mnt/build/bin/workloads/endless", "--seconds", "600"]
SYSTEMD = "/lib/systemd/systemd"
# In a process namespace of its own. It begins in the root of the control groups, and leaves the kernel's settings alone.
BOOT = """echo $$ > /sys/fs/cgroup/cgroup.procs && mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys &&
exec env -i container=test PATH=/usr/bin:/bin %s --system --unit=test.target --log-target=console --show-status=no""" % SYSTEMD
UNIT = """[Unit]
DefaultDependencies=no
[Service]
Slice={slice}
ExecStart={program}
Environment={environment}
"""
TENANTS = """
[tenant.research]
[tenant.named]
match = [{ container = "web-*" }]
[tenant.labelled]
match = [{ label = "team=vision*" }]
[tenant.trainers]
match = [{ container = "trainer", label = "io.kubernetes.cri.sandbox-namespace=lab" }]
[tenant.team-a]
match = [{ cgroup = "/team_a.slice/*" }, { cgroup = "/team_a/*" }]
[tenant.ml]
match = [{ cgroup = "/ml.slice/*" }]
"""


def skip_reason(*programs):
    """Returns why tests that need these programs cannot run here, or None."""
    if os.geteuid() != 0:
        return "only root may start containers here"
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        return "%s is not installed (packages podman, runc, docker.io, containerd)" % ", ".join(missing)
    if not version_2():
        return "no control groups of version 2 are mounted"
    tried = subprocess.run(NAMESPACES + ["mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    return None if tried.returncode == 0 else "no namespaces can be made here: " + tried.stderr.strip()


def version_2():
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, folder, kind = line.split()[:3]
        if kind == "cgroup2":
            return pathlib.Path(folder)
    return None


def enter():
    """Starts this script again in namespaces of its own, and returns its status."""
    group = version_2() / ("%s.%d" % (GROUP, os.getpid()))
    (group / "test").mkdir(parents=True)
    try:
        return subprocess.run(NAMESPACES + [sys.executable, *sys.argv, "--inside=%s" % group]).returncode
    finally:
        until("nothing is left in the group", lambda: "populated 0" in (group / "cgroup.events").read_text())
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)


def enter_group(group):
    """Makes it the root of what is seen of control groups from here, with this process right below it: engines hand the
    root's controllers on, which is allowed where no process is in it."""
    own = str(os.getpid())
    (group / "cgroup.procs").write_text(own)
    if ctypes.CDLL(None, use_errno=True).unshare(0x02000000) != 0:  # CLONE_NEWCGROUP
        raise OSError(ctypes.get_errno(), "no namespace of control groups")
    (group / "test/cgroup.procs").write_text(own)
    subprocess.run(["umount", "--recursive", CGROUPS], check=True)
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", CGROUPS], check=True)


class Machine:
    def __init__(self, build, group):
        enter_group(group)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", WORK], check=True)
        for place in KEPT:
            if pathlib.Path(place).exists():
                subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place], check=True)
        for folder in "build", "run", "sim", "bin", "lib", "log":
            (WORK / folder).mkdir()
        self.build = WORK / "build"
        subprocess.run(["mount", "--bind", build, self.build], check=True)
        # What runtimes start as root, and put into containers, is to be root's.
        shutil.copy(self.build / "bin/gpushare", WORK / "bin")
        shutil.copy(self.build / "lib/libgpushare.so", WORK / "lib")
        bring_up_loopback()
        (WORK / "containers.conf").write_text(
            '[containers]\npids_limit = 0\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\nruntime = "runc"\n')
        (WORK / "gpushare.toml").write_text(TENANTS)
        os.environ.update(CONTAINERS_CONF=str(WORK / "containers.conf"), STORAGE_DRIVER="vfs", GPUSHARE_SOCKET="/mnt/run/agent.sock",
                          GPUSHARE_REGION="/gpushare-containers-test", PATH="/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin:" + os.environ["PATH"])
        os.chdir(WORK)
        self.started = {}
        self.begin("sim", self.build / "bin/gpushare-sim", "--socket", "/mnt/sim/socket")
        until("gpushare-sim", pathlib.Path("/mnt/sim/socket").exists)
        self.begin("gpushared", self.build / "bin/gpushared", "--sim=/mnt/sim/socket", "--config", "/mnt/gpushare.toml")
        until("the agent answers", lambda: self.gpushare("status").returncode == 0)

    def begin(self, name, *words):
        """Starts a daemon, which goes with the machine."""
        with (WORK / "log" / name).open("a") as log:
            self.started[name] = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)

    def log(self, name):
        file = WORK / "log" / name
        return file.read_text(errors="replace") if file.exists() else ""

    def run(self, *words, **more):
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, **more)

    def output(self, *words, **more):
        said = self.run(*words, **more)
        assert said.returncode == 0, "%s: %s%s" % (" ".join(map(str, words)), said.stdout, said.stderr)
        return said.stdout.strip()

    def hand_over(self, name, *words):
        """Runs what leaves its outputs, a log here, to a program that goes on."""
        with (WORK / "log" / name).open("a") as log:
            subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, timeout=120)

    def gpushare(self, *words):
        return self.run(WORK / "bin/gpushare", *words)

    def processes(self):
        return json.loads(self.output(WORK / "bin/gpushare", "status", "--json"))["processes"]

    def tenant_of(self, pid):
        """Waits until the process is on the GPU, and returns its tenant."""
        return until("process %d is on the GPU" % pid, lambda: next((p["tenant"] for p in self.processes() if p["pid"] == pid), None))

    # --- engines

    def load(self, engine):
        """An image that has nothing but the places where this machine's folders go."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as image:
            for name in "bin", "lib", "lib64":
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, "usr/" + name
                image.addfile(link)
            for name in "usr", "mnt", "proc", "tmp":
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                image.addfile(folder)
        (WORK / "image.tar").write_bytes(archive.getvalue())
        self.output(engine, "import", WORK / "image.tar", IMAGE)

    def has(self, engine):
        return self.run(engine, "image", "inspect", IMAGE).returncode == 0

    def begin_container(self, engine, name, *words):
        """Starts a container that keeps the GPU busy, and returns its first process."""
        if engine == "docker" and "dockerd" not in self.started:
            self.begin("dockerd", "dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs",
                       "--exec-opt", "native.cgroupdriver=cgroupfs")
            until("dockerd", lambda: self.run("docker", "version").returncode == 0)
        if not self.has(engine):
            self.load(engine)
        limits = ["--ulimit", "host"] if engine == "podman" else []  # this machine may allow less than podman wants
        seen = [word for place in SEEN for word in ("--volume", "%s:%s:ro" % (place, place))]
        told = [word for one in ENVIRONMENT for word in ("--env", one)]
        self.output(engine, "run", "--detach", "--name", name, "--network", "none", *limits, *seen, *told, *words, IMAGE, *PROGRAM)
        return int(self.output(engine, "inspect", "--format", "{{.State.Pid}}", name))

    def end_container(self, engine, *names):
        at_once = ["--time", "0"] if engine == "podman" else []  # the first process of a container is deaf to SIGTERM
        self.output(engine, "rm", "--force", *at_once, *names)

    def bundle(self, folder, **more):
        """Writes what runc and containerd start a container from: the same program, with these members of config.json."""
        root = folder / "rootfs"
        for name in "usr", "mnt/build", "mnt/sim", "proc":
            (root / name).mkdir(parents=True)
        for name in "bin", "lib", "lib64":
            (root / name).symlink_to("usr/" + name)
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}]
        mounts += [{"destination": place, "source": place, "options": ["rbind", "ro"]} for place in SEEN]
        config = {"ociVersion": "1.0.2", "root": {"path": str(root)}, "mounts": mounts,
                  "process": {"user": {"uid": 0, "gid": 0}, "args": PROGRAM, "cwd": "/", "env": list(ENVIRONMENT)},
                  "linux": {"namespaces": [{"type": "mount"}, {"type": "pid"}]}, **more}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def begin_unit(self, name, **more):
        """Boots systemd, which starts nothing but a unit with the program in it. `slice`: the unit's. Before any container: their
        engines hand on the controllers of the root, and then nobody may begin there."""
        folder = pathlib.Path("/run/systemd/system")
        folder.mkdir(parents=True)
        (folder / "test.target").write_text("[Unit]\nDefaultDependencies=no\nWants=%s\n" % name)
        (folder / name).write_text(UNIT.format(program=" ".join(PROGRAM), environment=" ".join(ENVIRONMENT), **more))
        self.begin("systemd", "unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "sh", "-c", BOOT)

    def make_group(self, path):
        folder = CGROUPS / path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def begin_in_group(self, folder, **more):
        """Starts the program by itself in a control group, and returns it. `more`: as for subprocess.Popen."""
        script = 'echo $$ > "$0/cgroup.procs" && exec setpriv --reuid="$1" --clear-groups "$2" --seconds 600'
        environment = {**os.environ, **dict(one.split("=", 1) for one in ENVIRONMENT)}
        return subprocess.Popen(["sh", "-c", script, str(folder), str(more.pop("user", 0)), str(self.build / "bin/workloads/endless")],
                                env=environment, **more)
