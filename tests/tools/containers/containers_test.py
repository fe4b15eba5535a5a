#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Containers of the real podman, runc, Docker and containerd, and units of systemd, on a simulated GPU: containers_test.py BUILD [NAME...]

All tests run on one machine (containers_rig.py). Prints GoogleTest's lines; status 0 when nothing failed. A test whose engine is
not installed is skipped.
"""
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import containers_rig  # noqa: E402
from containers_rig import SPEC, WORK, cases, until  # noqa: E402

ID = "0123456789abcdef" * 4


def expect(is_so, what):
    assert is_so, what


def expect_tenant(machine, pid, tenant):
    found = machine.tenant_of(pid)
    expect(found == tenant, "process %d is in %s and not in %s\n%s" % (pid, found, tenant, pathlib.Path("/proc/%d/cgroup" % pid).read_text()))


def expect_slot(pid):
    """The page that the agent gives a program with the shim."""
    until("the agent has answered the shim", lambda: "/memfd:gpushare-shim" in pathlib.Path("/proc/%d/maps" % pid).read_text())


def generate(machine, *words):
    machine.output(WORK / "bin/gpushare", "--socket", "/mnt/run/agent.sock", "cdi", "generate", "--output", SPEC, *words)


def APodmanDeviceIsATenant(machine):
    generate(machine)
    by_device = machine.begin_container("podman", "by-device", "--device", "gpushare.io/tenant=research")
    without = machine.begin_container("podman", "without")
    expect_tenant(machine, by_device, "research")
    expect_tenant(machine, without, "default")
    machine.end_container("podman", "by-device", "without")


def APodmanContainerThatMustHaveItsTenantDoesNotRunWithoutIt(machine):
    expect(machine.gpushare("set", "--create", "passing", "weight=10").returncode == 0, "there is no tenant")
    until("it is shown", lambda: "passing" in machine.gpushare("tenants").stdout)
    generate(machine, "--required")
    expect(machine.gpushare("remove", "passing").returncode == 0, "it cannot be removed")
    try:
        machine.begin_container("podman", "required", "--device", "gpushare.io/tenant=passing")
    except AssertionError as refused:
        expect("there is no tenant 'passing'" in str(refused), refused)
    else:
        raise AssertionError("it runs")
    machine.end_container("podman", "required")
    generate(machine)
    expect("passing" not in pathlib.Path(SPEC).read_text(), "a tenant that is gone is a device")


def TheShimComesWithADevice(machine):
    generate(machine, "--shim")
    pid = machine.begin_container("podman", "shimmed", "--device", "gpushare.io/tenant=research")
    expect_tenant(machine, pid, "research")
    expect(sorted(os.listdir("/proc/%d/root/mnt/run" % pid)) == ["shim.sock"], "more than the shim's socket is in the container")
    expect_slot(pid)
    machine.end_container("podman", "shimmed")
    generate(machine)


def RuncCallsTheHook(machine):
    generate(machine)
    device = next(d for d in json.loads(pathlib.Path(SPEC).read_text())["devices"] if d["name"] == "research")
    hook = device["containerEdits"]["hooks"][0]
    expect(hook["hookName"] == "createRuntime", hook)
    (WORK / "runc").mkdir()
    bundle = machine.bundle(WORK / "runc", hooks={"createRuntime": [{"path": hook["path"], "args": hook["args"]}]})
    machine.hand_over("runc", "runc", "run", "--detach", "--bundle", bundle, "by-hook")
    expect_tenant(machine, json.loads(machine.output("runc", "state", "by-hook"))["pid"], "research")
    machine.output("runc", "delete", "--force", "by-hook")


def PodmansNamesAndAnnotationsAreKnown(machine):
    # A label that is none of podman's files says nothing.
    pids = [machine.begin_container("podman", name, *words) for name, words in (
        ("web-1", []), ("noted", ["--annotation", "team=vision-2"]), ("my-web-1", ["--label", "team=vision"]))]
    for pid, tenant in zip(pids, ("named", "labelled", "default")):
        expect_tenant(machine, pid, tenant)
    machine.end_container("podman", "web-1", "noted", "my-web-1")
    machine.output("podman", "pod", "create", "--infra=false", "--share", "", "--name", "pod")
    expect_tenant(machine, machine.begin_container("podman", "web-2", "--pod", "pod"), "named")
    machine.output("podman", "pod", "rm", "--force", "--time", "0", "pod")


def WhatTheContainerStartsIsInItsTenant(machine):
    pid = machine.begin_container("podman", "web-3")
    expect_tenant(machine, pid, "named")
    command = ["podman", "exec", "--detach", "web-3", *containers_rig.PROGRAM]
    machine.output(*command)
    until("both are there", lambda: [p["tenant"] for p in machine.processes()] == ["named", "named"])
    machine.end_container("podman", "web-3")


def AParentOfPodmansIsMatched(machine):
    # It takes a slice's name only where systemd makes the cgroups.
    expect_tenant(machine, machine.begin_container("podman", "below", "--cgroup-parent=/team_a"), "team-a")
    machine.end_container("podman", "below")


def AUnitOfASliceIsInItsTenant(machine):
    machine.begin_unit("jupyter-7.service", slice="ml-notebook.slice")
    until("it is in its tenant", lambda: [p["tenant"] for p in machine.processes()] == ["ml"])
    pid = machine.processes()[0]["pid"]
    path = pathlib.Path("/proc/%d/cgroup" % pid).read_text().split("0::")[1].strip()
    expect(path == "/ml.slice/ml-notebook.slice/jupyter-7.service", path)
    machine.started["systemd"].kill()
    until("it has ended", lambda: not machine.processes())


def AGroupOfAUsersThatIsCalledLikeAContainerIsNone(machine):
    pid = machine.begin_container("podman", "web-4")
    expect_tenant(machine, pid, "named")
    theirs = pathlib.Path("/proc/%d/cgroup" % pid).read_text().split("0::")[1].split()[0].split("/")[-1]
    expect(theirs.startswith("libpod-"), theirs)
    users = machine.make_group("/user.slice/user-4001.slice")
    os.chown(users, 4001, 4001)
    liar = machine.begin_in_group(machine.make_group("/user.slice/user-4001.slice/" + theirs), user=4001)
    expect_tenant(machine, liar.pid, "default")
    liar.kill()
    liar.wait()
    machine.end_container("podman", "web-4")


def DockersNamesLabelsAndParentsAreKnown(machine):
    pids = [machine.begin_container("docker", name, *words) for name, words in (
        ("web-1", []), ("labelled", ["--label", "team=vision"]), ("below", ["--cgroup-parent=/team_a.slice"]), ("other", []))]
    for pid, tenant in zip(pids, ("named", "labelled", "team-a", "default")):
        expect_tenant(machine, pid, tenant)
    machine.end_container("docker", "web-1", "labelled", "below", "other")


def WhatIsToBeMountedForTheShimInDocker(machine):
    """As docs/recipes.md has it, but for the library's place: /usr is this machine's here."""
    library = "/mnt/lib/libgpushare.so"
    pid = machine.begin_container("docker", "shimmed", "--volume", library + ":" + library + ":ro", "--volume", "/mnt/run/containers:/run/gpushare:ro",
                                  "--env", "LD_PRELOAD=" + library)
    expect_slot(pid)
    machine.end_container("docker", "shimmed")


def ContainerdsAnnotationsAreKnown(machine):
    """As the kubelet's containers have them."""
    machine.begin("containerd", "containerd")
    until("containerd", lambda: machine.run("ctr", "version").returncode == 0)
    (WORK / "trainer").mkdir()
    noted = {"io.kubernetes.cri.container-name": "trainer", "io.kubernetes.cri.sandbox-namespace": "lab"}
    bundle = machine.bundle(WORK / "trainer", annotations=noted)
    config = json.loads((bundle / "config.json").read_text())
    config["linux"]["cgroupsPath"] = "/kubepods/besteffort/pod1/" + ID
    (bundle / "config.json").write_text(json.dumps(config))
    machine.output("ctr", "--namespace", "k8s.io", "run", "--detach", "--config", bundle / "config.json", ID)
    pid = next(int(line.split()[1]) for line in machine.output("ctr", "--namespace", "k8s.io", "tasks", "ls").splitlines() if line.startswith(ID))
    expect_tenant(machine, pid, "trainers")
    machine.output("ctr", "--namespace", "k8s.io", "tasks", "rm", "--force", ID)


# In this order.
NEEDS = {
    (containers_rig.SYSTEMD,): [AUnitOfASliceIsInItsTenant],
    ("podman", "runc"): [APodmanDeviceIsATenant, APodmanContainerThatMustHaveItsTenantDoesNotRunWithoutIt, TheShimComesWithADevice,
                         PodmansNamesAndAnnotationsAreKnown, WhatTheContainerStartsIsInItsTenant, AParentOfPodmansIsMatched,
                         AGroupOfAUsersThatIsCalledLikeAContainerIsNone],
    ("runc",): [RuncCallsTheHook],
    ("dockerd", "docker", "containerd", "runc"): [DockersNamesLabelsAndParentsAreKnown, WhatIsToBeMountedForTheShimInDocker],
    ("containerd", "ctr", "runc"): [ContainerdsAnnotationsAreKnown],
}
TESTS = [test for tests in NEEDS.values() for test in tests]


def run(build, wanted, group):
    machine = containers_rig.Machine(build, pathlib.Path(group))
    return cases.run("Containers", wanted, lambda test, _began: test(machine),
                     lambda: ((log.name, machine.log(log.name)) for log in (WORK / "log").iterdir()))


def main():
    build, *names = (word for word in sys.argv[1:] if not word.startswith("--"))
    wanted = cases.wanted(TESTS, names)
    group = next((word.split("=", 1)[1] for word in sys.argv[1:] if word.startswith("--inside=")), None)
    can_run = []
    for programs, tests in NEEDS.items():
        reason = containers_rig.skip_reason(*programs)
        if not reason:
            can_run += [test for test in tests if test in wanted]
        elif not group:
            cases.skip("Containers", [test for test in tests if test in wanted], reason)
    if group:
        return run(build, can_run, group)
    return containers_rig.enter() if can_run else 0


if __name__ == "__main__":
    sys.exit(main())
