# SPDX-License-Identifier: Apache-2.0
"""A cluster of one machine: munged, slurmctld and slurmd as they are installed, an agent, and a simulated GPU of 8 shards.

It lives in namespaces of its own (enter() starts the script again in them): everything is below /mnt, which is a file system in
memory, nothing of the machine is changed, and when the script ends, however it does, the kernel ends all that it has started.
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

WORK = pathlib.Path("/mnt")
NODE = "gpushare-node"
USERS = {"alice": 4001, "bob": 4002}
LONG_S = 60  # for what takes a second on a machine that is not busy
DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel")
CONFIG = """ClusterName=test
SlurmctldHost={node}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/mnt/munge/socket
StateSaveLocation=/mnt/state
SlurmdSpoolDir=/mnt/spool
SlurmctldPidFile=/mnt/slurmctld.pid
SlurmdPidFile=/mnt/slurmd.pid
SlurmctldLogFile=/mnt/slurmctld.log
SlurmdLogFile=/mnt/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,defer_batch=0
GresTypes=gpu,shard
ReturnToService=2
MpiDefault=none
MinJobAge=300
KillWait=2
PlugStackConfig=/mnt/plugstack.conf
NodeName={node} NodeAddr=127.0.0.1 CPUs=32 Gres=gpu:1,shard:8 State=UNKNOWN
PartitionName=all Nodes={node} Default=YES OverSubscribe=YES State=UP
"""


def skip_reason():
    """Returns why the tests cannot run here, or None."""
    if os.geteuid() != 0:
        return "only root may start slurmd"
    missing = [name for name in DAEMONS if not shutil.which(name)]
    if missing:
        return "Slurm is not installed: no %s (packages slurmctld slurmd slurm-client munge)" % ", ".join(missing)
    tried = subprocess.run(NAMESPACES + ["mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    return None if tried.returncode == 0 else "no namespaces can be made here: " + tried.stderr.strip()


NAMESPACES = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts",
              "--net", "--ipc"]


def enter():
    """Starts this script again in namespaces of its own, and returns its status."""
    return subprocess.run(NAMESPACES + [sys.executable, *sys.argv, "--inside"]).returncode


def until(what, condition, limit=LONG_S):
    """Waits until the condition is true, and returns its value."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("after %d s there is still not: %s" % (limit, what))
        time.sleep(0.02)


def bring_up_loopback():
    with socket.socket() as any_socket:
        # One address more than 127.0.0.1: with that alone getaddrinfo() takes a machine to have no network.
        for name, last in (b"lo", 1), (b"lo:1", 2):
            address = struct.pack("16sHH4B8x", name, socket.AF_INET, 0, 127, 0, 0, last)
            fcntl.ioctl(any_socket, 0x8916, address)  # SIOCSIFADDR
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x8 | 0x40))  # SIOCSIFFLAGS: up


class Cluster:
    def __init__(self, build):
        self.build = WORK / "build"
        self.socket = WORK / "run/agent.sock"
        self.jobs = []
        self.sim = self.agent = None
        self.elsewhere = ["munge/pid", "slurmctld.pid"]  # have the numbers of servers that are not on the node
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", WORK], check=True)
        for place, kind in ("/dev/shm", "tmpfs"), ("/sys/fs/bpf", "bpf"):
            subprocess.run(["mount", "-t", kind, kind, place], stderr=subprocess.DEVNULL)
        for folder in "build", "munge", "state", "spool", "run", "out":
            (WORK / folder).mkdir()
        (WORK / "out").chmod(0o1777)
        subprocess.run(["mount", "--bind", build, self.build], check=True)
        socket.sethostname(NODE)
        bring_up_loopback()
        self.replace("/etc/hosts", "127.0.0.1 localhost %s\n" % NODE)
        users = "".join("%s:x:%d:%d::/mnt:/bin/sh\n" % (name, uid, uid) for name, uid in USERS.items())
        self.replace("/etc/passwd", pathlib.Path("/etc/passwd").read_text() + users)
        (WORK / "slurm.conf").write_text(CONFIG.format(node=NODE))
        (WORK / "gres.conf").write_text("Name=gpu File=/dev/null\nName=shard Count=8\n")
        os.environ.update(SLURM_CONF="/mnt/slurm.conf", GPUSHARE_SOCKET=str(self.socket), GPUSHARE_REGION="/gpushare-slurm-test",
                          GPUSHARE_SIM=str(WORK / "run/sim.sock"), LD_LIBRARY_PATH=str(self.build / "lib/sim"))
        os.chdir(WORK / "out")

    def replace(self, path, text, mode=0o644):
        """Another file at this path, in this namespace only."""
        ours = WORK / pathlib.Path(path).name
        ours.write_text(text)
        ours.chmod(mode)
        subprocess.run(["mount", "--bind", ours, path], check=True)

    def put_back(self, path):
        subprocess.run(["umount", "--lazy", path], check=True)

    def start(self, accounting=None):
        """accounting(self) is called when there is munged and nothing of Slurm yet."""
        self.sim = subprocess.Popen([self.build / "bin/gpushare-sim", "--socket", WORK / "run/sim.sock"])
        (WORK / "munge/key").write_bytes(os.urandom(128))
        (WORK / "munge/key").chmod(0o400)
        munge = ["%s=/mnt/munge/%s" % (option, name) for option, name in (
            ("--socket", "socket"), ("--key-file", "key"), ("--pid-file", "pid"), ("--log-file", "log"), ("--seed-file", "seed"))]
        self.use_plugin()
        until("gpushare-sim", (WORK / "run/sim.sock").exists)
        self.start_agent()
        subprocess.run(["munged", *munge], check=True, stderr=subprocess.DEVNULL)
        if accounting:
            accounting(self)
        subprocess.run(["slurmctld", "-c"], check=True)
        self.start_slurmd()

    def use_plugin(self, *words):
        """Writes plugstack.conf, which each program of Slurm reads when it starts."""
        line = ["required", self.build / "lib/slurm/gpushare_spank.so", "socket=%s" % self.socket, "shards=8", *words]
        (WORK / "plugstack.conf").write_text(" ".join(map(str, line)) + "\n")

    def start_slurmd(self):
        subprocess.run(["slurmd"], check=True)
        until("the node is idle", lambda: self.node_state() in ("idle", "mix", "alloc"))

    def stop_slurmd(self):
        pid = int((WORK / "slurmd.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        until("slurmd ends", lambda: not is_running(pid))

    def lose_power(self):
        """Ends all that runs on the node, which is all but Slurm's servers, munged and the GPU, and loses what is in its memory."""
        stays = os.getpid(), self.sim.pid, *(int((WORK / name).read_text()) for name in self.elsewhere)

        def others():
            return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid not in stays and is_running(pid)]

        def kill():
            for pid in others():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            return not others()
        until("all has ended", kill)
        self.agent.wait(LONG_S)
        for file in [*pathlib.Path("/dev/shm").iterdir(), *(WORK / "run").iterdir(), WORK / "slurmd.pid"]:
            if not file.is_dir() and not file.name.startswith("sim.sock"):
                file.unlink()

    def node_state(self):
        return subprocess.run(["sinfo", "-h", "-o", "%t"], capture_output=True, text=True).stdout.strip().rstrip("*")

    # --- gpushare

    def start_agent(self):
        self.agent = subprocess.Popen([self.build / "bin/gpushared", "--sim=/mnt/run/sim.sock", "--config", WORK / "gpushare.toml"],
                                      stderr=(WORK / "gpushared.log").open("a"))
        until("the agent answers", lambda: self.gpushare("status").returncode == 0)

    def stop_agent(self):
        self.agent.terminate()
        self.agent.wait(LONG_S)

    def gpushare(self, *words):
        return subprocess.run([self.build / "bin/gpushare", *map(str, words)], capture_output=True, text=True)

    def status(self):
        said = self.gpushare("status", "--json")
        return json.loads(said.stdout) if said.returncode == 0 else {"tenants": [], "processes": []}

    def tenant(self, job):
        return next((t for t in self.status()["tenants"] if is_of_job(t["name"], job)), None)

    def tenants(self):
        return sorted(t["name"] for t in self.status()["tenants"] if is_of_job(t["name"]))

    def on_gpu(self, job):
        """The processes of a job's tenant that are on the GPU."""
        return [p for p in self.status()["processes"] if is_of_job(p["tenant"], job)]

    def used(self, jobs):
        return [sum(gpu["gpu_time_ns"] for gpu in (self.tenant(job) or {"gpus": []})["gpus"]) for job in jobs]

    def shares(self, jobs, gpu_seconds=1.5):
        """The part of the GPU that each job has had of what all of them have, by the GPU's own account, from now on until
        they have had so much together."""
        before = self.used(jobs)
        until("GPU time is used", lambda: sum(self.used(jobs)) - sum(before) >= gpu_seconds * 1e9)
        parts = [now - then for now, then in zip(self.used(jobs), before)]
        return [100 * part / sum(parts) for part in parts]

    def await_shares(self, jobs, wanted, points=1.0):
        seen = []

        def is_reached():
            seen.append(self.shares(jobs))
            return all(abs(share - want) <= points for share, want in zip(seen[-1], wanted))
        try:
            until("shares of %s" % wanted, is_reached)
        except AssertionError as error:
            raise AssertionError("%s; they were %s" % (error, seen)) from None
        return seen[-1]

    # --- Slurm

    def command(self, words, user=None):
        return (["runuser", "-u", user, "--"] if user else []) + [str(word) for word in words]

    def srun(self, *words, user=None, **environment):
        """Runs a job to its end."""
        return subprocess.run(self.command(["srun", "--quiet", *words], user), capture_output=True, text=True, timeout=LONG_S,
                              env={**os.environ, **environment})

    def srun_busy(self, *words, user=None):
        """Starts a job without a script that keeps the GPU busy, and returns its number."""
        number = WORK / "out/number"
        script = "echo $SLURM_JOB_ID >%s.new; mv %s.new %s; exec %s" % (number, number, number, self.busy())
        subprocess.Popen(self.command(["srun", "--quiet", *words, "sh", "-c", script], user), stderr=subprocess.DEVNULL)
        until("the job runs", number.exists)
        job = number.read_text().strip()
        number.unlink()
        until("job %s is on the GPU" % job, lambda: self.on_gpu(job))
        return job

    def begin(self, *words, user=None, what=None):
        """Starts a job that keeps the GPU busy, and returns its number."""
        script = "#!/bin/sh\nexec %s\n" % (what or self.busy())
        said = subprocess.run(self.command(["sbatch", "--parsable", "-o", "/mnt/out/%j", *words], user), input=script, text=True,
                              capture_output=True)
        assert said.returncode == 0, said.stderr
        return said.stdout.strip()

    def busy(self):
        return "%s --seconds 600" % (self.build / "bin/workloads/endless")

    def begin_busy(self, *words, **more):
        job = self.begin(*words, **more)
        until("job %s is on the GPU" % job, lambda: self.on_gpu(job))
        return job

    def cancel(self, *jobs):
        subprocess.run(["scancel", *jobs], check=True)
        until("jobs %s have ended" % (jobs,), lambda: not self.queue())
        until("the node is idle", lambda: self.node_state() == "idle")

    def queue(self):
        return subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, text=True).stdout.split()

    def shown(self, job):
        """The job's AdminComment, as an administrator sees it; "": it has none."""
        said = subprocess.run(["scontrol", "show", "job", job], capture_output=True, text=True).stdout
        found = re.search(r"^ *AdminComment=(.*?) *$", said, re.MULTILINE)
        return found[1] if found else ""

    def logged_use(self, job):
        """GPU seconds and throttled seconds of a job that has ended, as slurmd's log has them."""
        found = re.search(r"gpushare: job %s used ([0-9.]+) GPU seconds, was throttled for ([0-9.]+) s" % job, self.log())
        return found and found.groups()

    def text(self, name):
        file = WORK / name
        return file.read_text(errors="replace") if file.exists() else ""

    def log(self):
        return self.text("slurmd.log")


def is_of_job(tenant, job=""):
    """Whether the tenant is that of a job, of any or of this one, wherever it is in the tree."""
    own = tenant.rpartition("/")[2]
    return own == "slurm-%s" % job if job else own.startswith("slurm-")


def is_running(pid):
    try:
        state = pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


