# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes of one node: etcd, API server, scheduler, containerd and kubelet as engine.sh builds them, an agent and the
device plugin, and a simulated GPU of 10 shares. In namespaces of its own, below /mnt, with control groups of its own.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import io
import hashlib
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "slurm"))
import cases  # noqa: E402,F401
from slurm_rig import NAMESPACES, WORK, bring_up_loopback, until  # noqa: E402

NODE = "n1"
SHARES = 10
GROUP = "gpushare-kubernetes-test"
API = "https://127.0.0.1:6443"
ACCOUNT = "system:serviceaccount:gpushare:gpushare-device-plugin"
CONTAINERD = """version = 2
root = "/mnt/containerd/root"
state = "/mnt/containerd/state"
[grpc]
  address = "/mnt/containerd/socket"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/local/host:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
"""
LONG_S = 90


def hierarchies():
    """The control groups' hierarchies that are mounted: folder, type and options."""
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, folder, kind, options = line.split()[:4]
        if kind in ("cgroup", "cgroup2"):
            names = [o for o in options.split(",") if o not in ("rw", "ro", "relatime", "nosuid", "nodev", "noexec")]
            yield folder, kind, ",".join(names)


def enter_group():
    """Puts this process below a control group of its own in every hierarchy."""
    for folder, kind, _ in hierarchies():
        group = pathlib.Path(folder) / GROUP
        group.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if kind == "cgroup" and (group / name).exists():
                (group / name).write_text((pathlib.Path(folder) / name).read_text())
        (group / "cgroup.procs").write_text(str(os.getpid()))


def leave_group():
    own = str(os.getpid())
    for folder, _, _ in hierarchies():
        root = pathlib.Path(folder)
        if not (root / GROUP).exists():
            continue
        (root / "cgroup.procs").write_text(own)
        for where, _, _ in os.walk(root / GROUP, topdown=False):
            for _ in range(50):
                try:
                    os.rmdir(where)
                    break
                except OSError:
                    time.sleep(0.1)


def enter():
    """Starts this script again in namespaces of its own, and returns its status."""
    enter_group()
    try:
        return subprocess.run(NAMESPACES + ["--cgroup", sys.executable, *sys.argv, "--inside"]).returncode
    finally:
        leave_group()


class Cluster:
    def __init__(self, build, engine):
        self.build = WORK / "build"
        self.socket = WORK / "run/agent.sock"
        self.started = {}
        found = list(hierarchies())
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", WORK], check=True)
        for folder in "build", "engine", "run", "sim", "containerd", "kubelet", "etcd", "keys", "log", "run2", "deploy":
            (WORK / folder).mkdir()
        deploy = pathlib.Path(__file__).resolve().parents[3] / "tools/kubernetes/deploy"
        for source, place in (build, "build"), (engine, "engine"), (deploy, "deploy"):
            subprocess.run(["mount", "--bind", source, WORK / place], check=True)
        # The same hierarchies as they are seen from within the group.
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup"], check=True)
        for folder, kind, options in found:
            pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
            words = ["-o", options] if kind == "cgroup" and options else []
            subprocess.run(["mount", "-t", kind, *words, kind, folder], check=True)
        for kind, place in ("tmpfs", "/dev/shm"), ("tmpfs", "/run"), ("tmpfs", "/var/log"), ("bpf", "/sys/fs/bpf"):
            subprocess.run(["mount", "-t", kind, kind, place], stderr=subprocess.DEVNULL)
        pathlib.Path("/var/lib/kubelet").mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", WORK / "kubelet", "/var/lib/kubelet"], check=True)
        bring_up_loopback()
        root = WORK / "engine/root"
        os.environ.update(
            PATH=":".join(map(str, (WORK / "engine/bin", root / "usr/bin", root / "usr/sbin"))) + ":" + os.environ["PATH"],
            KUBECONFIG="/mnt/keys/admin", GPUSHARE_SOCKET=str(self.socket), GPUSHARE_REGION="/gpushare-kubernetes-test",
            GPUSHARE_SIM="/mnt/sim/socket", ETCD_UNSUPPORTED_ARCH="", LD_LIBRARY_PATH="")
        os.environ["LD_LIBRARY_PATH"] = str(root / "usr/lib/x86_64-linux-gnu")
        os.chdir(WORK)

    def begin(self, name, *words, **environment):
        """Starts a daemon of the cluster, which goes with it."""
        with (WORK / "log" / name).open("a") as log:
            self.started[name] = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log,
                                                  env={**os.environ, **environment})

    def kill(self, name):
        self.started[name].kill()
        self.started[name].wait()

    def start(self):
        self.begin("sim", self.build / "bin/gpushare-sim", "--socket", "/mnt/sim/socket")
        until("gpushare-sim", pathlib.Path("/mnt/sim/socket").exists)
        self.start_agent()
        self.make_keys()
        self.begin("etcd", "etcd", "--data-dir", "/mnt/etcd")
        self.begin("apiserver", "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--cert-dir=/mnt/keys",
                   "--secure-port=6443", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
                   "--token-auth-file=/mnt/keys/tokens", "--authorization-mode=RBAC", "--service-account-issuer=https://test",
                   "--service-account-signing-key-file=/mnt/keys/sa.key", "--service-account-key-file=/mnt/keys/sa.pub",
                   "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged")
        (WORK / "containerd/config.toml").write_text(CONTAINERD)
        self.begin("containerd", "containerd", "--config", "/mnt/containerd/config.toml")
        until("containerd", lambda: self.ctr("version").returncode == 0)
        self.make_image()
        until("the API server", lambda: self.kubectl("get", "--raw", "/healthz").returncode == 0, LONG_S)
        self.begin("scheduler", "kube-scheduler", "--kubeconfig=/mnt/keys/admin", "--leader-elect=false")
        # The files that an administrator would apply; their account is what the plugin may be.
        applied = until("what is deployed is taken", lambda: self.applied("-k", "/mnt/deploy"))
        print(applied.strip())
        self.start_kubelet()
        until("the kubelet listens", pathlib.Path("/var/lib/kubelet/device-plugins/kubelet.sock").exists, LONG_S)
        self.start_plugin()
        until("the node has %d shares" % SHARES, lambda: self.allocatable().get("gpushare.io/share") == str(SHARES), LONG_S)

    def applied(self, *words):
        said = self.kubectl("apply", *words)
        if said.returncode != 0:
            (WORK / "log/apply").write_text(said.stderr)
        return said.stdout if said.returncode == 0 else ""

    def make_keys(self):
        keys = WORK / "keys"
        subprocess.run(["openssl", "genrsa", "-out", keys / "sa.key", "2048"], check=True, stderr=subprocess.DEVNULL)
        subprocess.run(["openssl", "rsa", "-in", keys / "sa.key", "-pubout", "-out", keys / "sa.pub"], check=True,
                       stderr=subprocess.DEVNULL)
        (keys / "tokens").write_text('admin-token,admin,1,system:masters\nplugin-token,%s,2,"system:serviceaccounts"\n' % ACCOUNT)
        (keys / "plugin").write_text("plugin-token\n")
        (keys / "admin").write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": API, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": {"token": "admin-token"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}))

    def make_image(self):
        """An image with nothing in it but places for what pods mount of the machine, and a program that waits."""
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            tar.add("/bin/busybox", "busybox")
            for folder in "usr", "mnt", "proc", "sys", "dev", "etc", "run", "tmp":
                made = tarfile.TarInfo(folder)
                made.type, made.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(made)
            for link in "bin", "lib", "lib64", "sbin":
                made = tarfile.TarInfo(link)
                made.type, made.linkname = tarfile.SYMTYPE, "usr/" + link
                tar.addfile(made)
        digest = "sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()
        config = {"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/busybox", "sleep", "1000000000"]},
                  "rootfs": {"type": "layers", "diff_ids": [digest]}}
        manifest = [{"Config": "config.json", "RepoTags": ["docker.io/local/host:1"], "Layers": ["layer.tar"]}]
        with tarfile.open(WORK / "image.tar", "w") as tar:
            for name, data in (("layer.tar", layer.getvalue()), ("config.json", json.dumps(config).encode()),
                               ("manifest.json", json.dumps(manifest).encode())):
                made = tarfile.TarInfo(name)
                made.size = len(data)
                tar.addfile(made, io.BytesIO(data))
        said = self.ctr("images", "import", "/mnt/image.tar")
        assert said.returncode == 0, said.stderr

    def start_agent(self):
        self.begin("agent", self.build / "bin/gpushared", "--sim=/mnt/sim/socket", "--config", "/mnt/gpushare.toml")
        until("the agent answers", lambda: self.gpushare("status").returncode == 0)

    def start_plugin(self):
        self.begin("plugin", self.build / "bin/gpushare-device-plugin", "--node", NODE, "--shares", SHARES, "--api-server", API,
                   "--token-file", "/mnt/keys/plugin", "--ca-file", "/mnt/keys/apiserver.crt", LD_LIBRARY_PATH="")

    def start_kubelet(self):
        self.begin("kubelet", "kubelet", "--kubeconfig=/mnt/keys/admin", "--container-runtime=remote",
                   "--container-runtime-endpoint=unix:///mnt/containerd/socket", "--fail-swap-on=false",
                   "--cgroup-driver=cgroupfs", "--hostname-override=" + NODE, "--oom-score-adj=0", "--eviction-hard=",
                   "--enforce-node-allocatable=", "--v=2")

    # --- commands

    def run(self, *words):
        return subprocess.run([str(word) for word in words], capture_output=True, text=True)

    def gpushare(self, *words):
        return self.run(self.build / "bin/gpushare", *words)

    def metrics(self):
        return self.run(self.build / "bin/gpushare-exporter", "--textfile", "-", "--pods", "/mnt/run/pods.json").stdout

    def ctr(self, *words):
        return self.run("ctr", "-a", "/mnt/containerd/socket", "-n", "k8s.io", *words)

    def kubectl(self, *words):
        return self.run("kubectl", *words)

    def get(self, *words):
        said = self.kubectl("get", *words, "-o", "json")
        return json.loads(said.stdout) if said.returncode == 0 else {}

    def allocatable(self):
        return self.get("node", NODE).get("status", {}).get("allocatable", {})

    # --- pods

    def pod(self, name, *shares, annotations=None, what="exec /mnt/build/bin/workloads/endless --seconds 3600", environment=None):
        """Makes a pod with a container for each number of shares."""
        mounts = {"usr": "/usr", "build": "/mnt/build", "sim": "/mnt/sim"}
        variables = {"GPUSHARE_SIM": "/mnt/sim/socket", "LD_LIBRARY_PATH": "/mnt/build/lib/sim", **(environment or {})}
        containers = [{
            "name": "c%d" % number, "image": "docker.io/local/host:1", "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", what],
            "env": [{"name": key, "value": value} for key, value in variables.items()],
            "resources": {"limits": {"gpushare.io/share": count} if count else {}},
            "volumeMounts": [{"name": key, "mountPath": place} for key, place in mounts.items()],
        } for number, count in enumerate(shares)]
        spec = {"hostNetwork": True, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": containers,
                "tolerations": [{"operator": "Exists"}], "automountServiceAccountToken": False,
                "volumes": [{"name": key, "hostPath": {"path": place}} for key, place in mounts.items()]}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}
        said = subprocess.run(["kubectl", "apply", "-f", "-"], input=json.dumps(made), capture_output=True, text=True)
        assert said.returncode == 0, said.stderr

    def busy(self, name, *shares, **more):
        """The same, and waits until all of its containers are on the GPU."""
        self.pod(name, *shares, **more)
        until("%s is on the GPU" % name, lambda: len(self.on_gpu(name)) == len(shares), LONG_S)

    def delete(self, *names):
        said = self.kubectl("delete", "pod", "--wait=true", *names)
        assert said.returncode == 0, said.stderr
        until("the tenants are gone", lambda: not any(self.tenant(name) for name in names))

    def annotate(self, name, *words):
        said = self.kubectl("annotate", "--overwrite", "pod", name, *words)
        assert said.returncode == 0, said.stderr

    # --- what the agent says

    def status(self):
        said = self.gpushare("status", "--json")
        return json.loads(said.stdout) if said.returncode == 0 else {"tenants": [], "processes": []}

    def tenant(self, pod):
        return next((t for t in self.status()["tenants"] if t["name"].startswith("k8s-default.%s." % pod)), None)

    def weight(self, pod):
        return (self.tenant(pod) or {}).get("weight")

    def on_gpu(self, pod):
        return [p for p in self.status()["processes"] if p["tenant"].startswith("k8s-default.%s." % pod)]

    def used(self, pods):
        return [sum(gpu["gpu_time_ns"] for gpu in (self.tenant(pod) or {"gpus": []})["gpus"]) for pod in pods]

    def await_shares(self, pods, wanted, points=1.0, gpu_seconds=1.5):
        """Waits until the pods have these parts of the GPU, by its own account, and returns those."""
        seen = []

        def is_reached():
            before = self.used(pods)
            until("GPU time is used", lambda: sum(self.used(pods)) - sum(before) >= gpu_seconds * 1e9)
            parts = [now - then for now, then in zip(self.used(pods), before)]
            seen.append([100 * part / sum(parts) for part in parts])
            return all(abs(share - want) <= points for share, want in zip(seen[-1], wanted))
        try:
            until("shares of %s" % wanted, is_reached)
        except AssertionError as error:
            raise AssertionError("%s; they were %s" % (error, seen)) from None
        print("  shares: " + ", ".join("%s %.1f %%" % pair for pair in zip(pods, seen[-1])))
        return seen[-1]

    def log(self, name):
        file = WORK / "log" / name
        return file.read_text(errors="replace") if file.exists() else ""

    def stop(self):
        for process in reversed(self.started.values()):
            process.send_signal(signal.SIGKILL)


def missing(build, engine):
    """Returns why the tests cannot run here, or None."""
    if os.geteuid() != 0:
        return "only root may start a kubelet"
    if not (pathlib.Path(build) / "bin/gpushare-device-plugin").exists():
        return "the plugin was not built: gRPC is missing (packages libgrpc++-dev protobuf-compiler-grpc libcurl4-openssl-dev)"
    if not (pathlib.Path(engine) / "bin/kube-apiserver").exists():
        return "no Kubernetes in %s: tests/tools/kubernetes/engine.sh %s builds one" % (engine, engine)
    if not shutil.which("busybox") or not shutil.which("openssl"):
        return "busybox-static or openssl is missing"
    return None
