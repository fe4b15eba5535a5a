#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shares of a simulated GPU in a real Kubernetes: kubernetes_test.py BUILD ENGINE [NAME...]

All tests run in one cluster (rig.py), each on an idle node. Prints GoogleTest's lines; status 0 when nothing failed.
"""
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import rig  # noqa: E402
from rig import cases, until  # noqa: E402


def expect(is_so, what):
    assert is_so, what


def expect_tenant_of_all(cluster, *pods):
    """Nobody on the GPU is in another tenant than its pod's."""
    elsewhere = [(p["command"], p["tenant"]) for p in cluster.status()["processes"]
                 if not any(p["tenant"].startswith("k8s-default.%s." % pod) for pod in pods)]
    expect(not elsewhere, elsewhere)


def PodsHaveTheirShares(cluster):
    cluster.busy("train", 7)
    cluster.busy("infer", 3)
    expect([cluster.weight("train"), cluster.weight("infer")] == [700, 300], cluster.status()["tenants"])
    cluster.await_shares(["train", "infer"], [70, 30])
    expect_tenant_of_all(cluster, "train", "infer")
    for pod in "train", "infer":
        labels = 'namespace="default",pod="%s",container="c0"} 1' % pod
        until("the metrics name " + pod, lambda labels=labels: labels in cluster.metrics(), 10)
    # A third has no room, until one ends.
    cluster.pod("third", 4)
    until("the third is refused a place", lambda: "Insufficient gpushare.io/share" in str(cluster.get("pod", "third")), 30)
    expect(cluster.get("pod", "third")["status"]["phase"] == "Pending", "it runs")
    cluster.delete("train")
    until("the third is on the GPU", lambda: cluster.on_gpu("third"), 60)
    cluster.await_shares(["third", "infer"], [400 / 7, 300 / 7])
    cluster.delete("third", "infer")


def AShareChangesWhileThePodRuns(cluster):
    cluster.busy("a", 5)
    cluster.busy("b", 5)
    took = []
    for shares in 1, 2, 3, 4, 1:
        cluster.annotate("b", "gpushare.io/share=%d" % shares)
        began = time.monotonic()
        until("the weight is %d" % (100 * shares), lambda shares=shares: cluster.weight("b") == 100 * shares, 5)
        took.append(time.monotonic() - began)
    print("  in force after %s ms" % [round(1000 * t) for t in took])
    expect(max(took) <= 1, took)
    cluster.await_shares(["a", "b"], [500 / 6, 100 / 6])
    # More than it asked it does not get, nor by a word that is none.
    for word in "9", "much", "-1":
        cluster.annotate("b", "gpushare.io/share=" + word)
        until("it has what it asked", lambda: cluster.weight("b") == 500, 5)
    cluster.annotate("b", "gpushare.io/share-")
    cluster.delete("a", "b")


def KillsInTheMiddleLoseNothing(cluster):
    cluster.busy("train", 7)
    cluster.busy("infer", 3)
    cluster.annotate("infer", "gpushare.io/share=2")
    until("the annotation is in force", lambda: cluster.weight("infer") == 200, 5)
    agent = cluster.status()["agent"]["pid"]
    os.kill(agent, signal.SIGKILL)
    until("the next agent", lambda: cluster.status().get("agent", {}).get("pid", agent) != agent)
    cluster.kill("plugin")
    cluster.annotate("infer", "gpushare.io/share=1")  # of which nobody hears now
    cluster.await_shares(["train", "infer"], [700 / 9, 200 / 9])
    cluster.start_plugin()
    until("the annotation is in force", lambda: cluster.weight("infer") == 100, 30)
    cluster.kill("kubelet")
    cluster.await_shares(["train", "infer"], [87.5, 12.5])
    cluster.start_kubelet()
    registered = cluster.log("plugin").count("registered with the kubelet")
    until("the plugin is registered again", lambda: cluster.log("plugin").count("registered with the kubelet") > registered, 60)
    cluster.await_shares(["train", "infer"], [87.5, 12.5])
    expect_tenant_of_all(cluster, "train", "infer")
    # The kubelet has not forgotten what it gave away, and gives away what is left.
    cluster.delete("train")
    cluster.busy("next", 7)
    # An agent that was stopped and forgot all is told all again.
    expect(cluster.gpushare("forget").returncode == 0, "forget")
    cluster.started["agent"].terminate()
    cluster.started["agent"].wait()
    cluster.start_agent()
    until("the tenants are there again", lambda: (cluster.weight("next"), cluster.weight("infer")) == (700, 100), 30)
    cluster.await_shares(["next", "infer"], [87.5, 12.5])
    cluster.delete("next", "infer")


def ContainersOfAPodShareItsTenant(cluster):
    cluster.busy("two", 2, 2)
    cluster.busy("one", 4)
    expect(len({p["tenant"] for p in cluster.on_gpu("two")}) == 1, cluster.on_gpu("two"))
    cluster.await_shares(["two", "one"], [50, 50])
    cluster.delete("two", "one")


def APodThatLiesGainsNothing(cluster):
    """It says that it has more, looks for the agent's socket, and tries to leave its control group."""
    lie = """
for socket in /run/gpushare/agent.sock /mnt/run/agent.sock; do [ -e $socket ] && echo "has $socket" >> /tmp/gained; done
for group in /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs; do
  [ -e $group ] && echo $$ > $group && echo "moved $group" >> /tmp/gained
done
mkdir /sys/fs/cgroup/unified/kubepods && echo made >> /tmp/gained
[ -e /tmp/gained ] && exit 1
setsid /mnt/build/bin/workloads/endless --seconds 3600 &
exec /mnt/build/bin/workloads/endless --seconds 3600
"""
    honest = "honest"
    cluster.busy(honest, 5)
    cluster.pod("liar", 1, what=lie, environment={"GPUSHARE_WEIGHT": "10000", "GPUSHARE_SHARES": "10"},
                annotations={"gpushare.io/share": "10", "gpushare.io/priority": "high", "gpushare.io/max": "200%"})
    until("the liar is on the GPU twice", lambda: len(cluster.on_gpu("liar")) == 2, 60)
    tenant = cluster.tenant("liar")
    expect((tenant["weight"], tenant["priority"]) == (100, "normal"), tenant)
    cluster.await_shares([honest, "liar"], [500 / 6, 100 / 6])
    expect_tenant_of_all(cluster, honest, "liar")
    expect("pod default/liar: 10 shares are wished for" in cluster.log("plugin"), cluster.log("plugin"))
    cluster.delete(honest, "liar")


def OthersAnnotationsAreUnderstood(cluster):
    cluster.busy("kai", 0, annotations={"gpu-fraction": "0.25"})
    cluster.busy("hami", 0, annotations={"nvidia.com/gpucores": "75", "nvidia.com/gpumem": "2048"})
    expect((cluster.weight("kai"), cluster.weight("hami")) == (250, 750), cluster.status()["tenants"])
    expect(cluster.tenant("hami")["memory_max_bytes"] == 2 << 30, cluster.tenant("hami"))
    cluster.await_shares(["kai", "hami"], [25, 75])
    cluster.delete("kai", "hami")


TESTS = [PodsHaveTheirShares, AShareChangesWhileThePodRuns, KillsInTheMiddleLoseNothing, ContainersOfAPodShareItsTenant,
         APodThatLiesGainsNothing, OthersAnnotationsAreUnderstood]


def run(build, engine, wanted):
    cluster = rig.Cluster(build, engine)

    def test_one(test, began):
        if not cluster.started:
            cluster.start()
            print("  the cluster is up after %.1f s" % (time.monotonic() - began))
        test(cluster)

    names = "plugin", "kubelet", "agent", "containerd", "apiserver", "scheduler", "apply"
    status = cases.run("Kubernetes", wanted, test_one, lambda: ((name, cluster.log(name)) for name in names))
    cluster.stop()
    return status


def main():
    build, engine, *names = (word for word in sys.argv[1:] if not word.startswith("--"))
    wanted = cases.wanted(TESTS, names)
    if "--inside" in sys.argv:
        return run(build, engine, wanted)
    if reason := rig.missing(build, engine):
        cases.skip("Kubernetes", wanted, reason)
        return 1
    return rig.enter()


if __name__ == "__main__":
    sys.exit(main())
