#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Slurm's shards on a simulated GPU, with the real munged, slurmctld and slurmd: slurm_test.py BUILD [NAME...]

All tests run in one cluster (slurm_rig.py), each on an idle node. Prints GoogleTest's lines; status 0 when nothing failed.
"""
import os
import pathlib
import re
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import accounting  # noqa: E402
import cases  # noqa: E402
import slurm_rig  # noqa: E402
from slurm_rig import WORK, until  # noqa: E402


def expect(is_so, what):
    assert is_so, what


def expect_gone(cluster, *jobs):
    """Ends the jobs; nothing of them is to stay, and what they used is in slurmd's log."""
    used = cluster.used(jobs)
    cluster.cancel(*jobs)
    until("the tenants are gone", lambda: not cluster.tenants())
    for job, least in zip(jobs, used):
        logged = until("the use of job %s is logged" % job, lambda job=job: cluster.logged_use(job))
        expect(float(logged[0]) >= least // 1e6 / 1e3, "%s is logged, but it had %d ns before" % (logged, least))


def expect_gone_later(cluster, job, tenant):
    """Ends the job while no agent runs: its tenant goes when there is one again, and somebody comes."""
    cluster.cancel(job)
    until("the job is noted", lambda: tenant in (WORK / "run/slurm-ended").read_text().split())
    cluster.start_agent()
    expect(tenant in cluster.tenants(), "the tenant went with the agent: the test shows nothing")
    expect(cluster.srun("--gres=shard:2", "true").returncode == 0, "a job does not run")
    until("the tenants are gone", lambda: not cluster.tenants())


def TwoJobsHaveTheirShards(cluster):
    two, six = cluster.begin_busy("--gres=shard:2"), cluster.begin_busy("--gres=shard:6")
    cluster.await_shares([two, six], [25, 75])
    expect([cluster.tenant(job)["weight"] for job in (two, six)] == [20, 60], cluster.status()["tenants"])
    # Slurm's daemon and the agent start again in the middle: nothing changes for the jobs.
    cluster.stop_slurmd()
    cluster.start_slurmd()
    used = cluster.used([two, six])
    before = cluster.status()["agent"]["pid"]
    os.kill(before, signal.SIGKILL)
    until("the next agent", lambda: cluster.status().get("agent", {}).get("pid", before) != before)
    until("both jobs are on the GPU again", lambda: cluster.on_gpu(two) and cluster.on_gpu(six))
    expect(all(now >= then for now, then in zip(cluster.used([two, six]), used)), "what they used is forgotten")
    cluster.await_shares([two, six], [25, 75])
    expect_gone(cluster, two, six)


def OrdinaryUsersHaveTheirShards(cluster):
    jobs = [cluster.begin_busy("--gres=shard:%d" % shards, user=user) for shards, user in ((2, "alice"), (6, "bob"))]
    cluster.await_shares(jobs, [25, 75])
    expect_gone(cluster, *jobs)


def AllThatAJobStartsIsInItsTenant(cluster):
    """The script, a child that left its session, a step, and a step of another two tasks."""
    script = "%s & setsid -f %s; srun --overlap -n1 %s & srun --overlap -n2 %s & wait" % ((cluster.busy(),) * 4)
    job = cluster.begin("--gres=shard:2", "-n2", what="sh -c '%s'" % script)
    until("five programs are on the GPU", lambda: len(cluster.on_gpu(job)) == 5)
    expect(cluster.tenants() == ["slurm-" + job], cluster.tenants())
    there = [(p["command"], p["tenant"]) for p in cluster.status()["processes"]]
    expect(len(there) == 5, "a program is in another tenant: %s" % there)
    expect(cluster.tenant(job)["weight"] == 20, "a step changed the weight")
    # proctrack/linuxproc does not see what left its session.
    for process in cluster.on_gpu(job):
        os.kill(process["pid"], signal.SIGTERM)
    expect_gone(cluster, job)


def EachElementOfAnArrayIsAJob(cluster):
    cluster.begin("--array=0-1", "--gres=shard:1", user="alice")
    until("both are on the GPU", lambda: len(cluster.status()["processes"]) == 2)
    there = sorted(p["tenant"] for p in cluster.status()["processes"])
    expect(there == cluster.tenants() and len(set(there)) == 2, "%s of %s" % (there, cluster.tenants()))
    expect_gone(cluster, *(tenant.removeprefix("slurm-") for tenant in cluster.tenants()))


def OptionsReachTheTenant(cluster):
    cluster.use_plugin("max_weight=500", "max_priority=high", "mem_per_shard=1G")
    job = cluster.begin_busy("--gres=shard:4", "--gpu-weight=300", "--gpu-cap=30%", "--gpu-mem=512M", "--gpu-priority=high")
    tenant = cluster.tenant(job)
    said = [tenant[key] for key in ("weight", "quota_us", "priority", "memory_max_bytes")]
    expect(said == [300, 30000, "high", 512 << 20], said)
    cluster.cancel(job)
    # The environment says the same, also of a script; what is not said comes from the shards.
    os.environ["GPUSHARE_WEIGHT"] = "7"
    try:
        job = cluster.begin_busy("--gres=shard:4")
    finally:
        del os.environ["GPUSHARE_WEIGHT"]
    tenant = cluster.tenant(job)
    said = [tenant[key] for key in ("weight", "priority", "memory_max_bytes")]
    expect(said == [7, "normal", 4 << 30], said)
    expect_gone(cluster, job)
    cluster.use_plugin()


def WrongOptionsAreRefused(cluster):
    cluster.use_plugin("max_weight=500")
    for options, words in (
            (["--gpu-weight=0"], "--gpu-weight: '0' is not allowed; allowed: 1 to 10000"),
            (["--gpu-cap=30"], "--gpu-cap: '30' is not allowed; allowed: 1% to 100%"),
            (["--gpu-mem=much"], "--gpu-mem: 'much' is not allowed"),
            (["--gpu-priority=first"], "allowed: idle, normal, high"),
            (["--gpu-weight=501"], "--gpu-weight=501 is more than this job may have: at most 500"),
            (["--gpu-priority=high"], "at most normal")):
        said = cluster.srun("--gres=shard:1", *options, "touch", WORK / "out/ran", user="alice")
        expect(said.returncode != 0 and words in said.stderr, "%s: %s" % (options, said))
    said = cluster.srun("true", GPUSHARE_CAP="x")
    expect(said.returncode != 0 and "$GPUSHARE_CAP" in said.stderr, said)
    expect(not (WORK / "out/ran").exists(), "a job ran")


def NobodyHasMoreThanTheNodeAllows(cluster):
    """What srun does not know is checked on the node; the job fails, and the node goes on."""
    cluster.use_plugin()
    for options, environment, words in (
            (["--gres=shard:2", "--gpu-weight=21"], {}, "--gpu-weight=21 is more than this job may have: at most 20"),
            # It is the user's word, beside a whole GPU.
            (["--gres=gpu:1"], {"SLURM_SHARDS_ON_NODE": "99"}, "99 shards")):
        said = cluster.srun(*options, "touch", WORK / "out/ran", user="alice", **environment)
        expect(said.returncode != 0 and words in said.stderr, "%s: %s" % (options, said))
    job = cluster.begin("--gres=shard:2", "--gpu-weight=21", user="alice", what="touch /mnt/out/ran")
    until("the job has ended", lambda: not cluster.queue())
    expect("at most 20" in (WORK / "out" / job).read_text(), "the job was not told")
    expect(not (WORK / "out/ran").exists(), "a job ran")
    until("the node is idle", lambda: cluster.node_state() == "idle")
    expect(not cluster.tenants(), cluster.tenants())
    # Nor does a step have more than its job.
    job = cluster.begin_busy("--gres=shard:1", what="srun --gres=none --gpu-weight=10 %s" % cluster.busy())
    expect(cluster.tenant(job)["weight"] == 10, cluster.tenant(job))
    expect_gone(cluster, job)


def AStepMayHaveFewerShardsThanItsJob(cluster):
    """What the job said is in the step's environment, too, and is more than the step's own shards make."""
    cluster.use_plugin("mem_per_shard=1G")
    said = {"GPUSHARE_WEIGHT": "40", "GPUSHARE_MEM": "4G"}
    os.environ.update(said)
    try:
        job = cluster.begin_busy("--gres=shard:4", user="alice", what="srun --overlap --gres=shard:1 %s" % cluster.busy())
    finally:
        for name in said:
            del os.environ[name]
    tenant = cluster.tenant(job)
    expect([tenant["weight"], tenant["memory_max_bytes"]] == [40, 4 << 30], tenant)
    expect_gone(cluster, job)
    cluster.use_plugin()


def WithoutAnAgentJobsRun(cluster):
    cluster.use_plugin()
    job = cluster.begin_busy("--gres=shard:2")
    cluster.stop_agent()
    said = cluster.srun("--gres=shard:2", "echo", "it ran")
    expect(said.stdout == "it ran\n" and "runs without a share: no agent at" in said.stderr, said)
    cluster.use_plugin("require_agent")
    said = cluster.srun("--gres=shard:2", "echo", "it ran")
    expect(said.returncode != 0 and not said.stdout and "may not run without gpushare" in said.stderr, said)
    until("the node is not drained", lambda: cluster.node_state() in ("mix", "idle"))
    expect_gone_later(cluster, job, "slurm-" + job)
    cluster.use_plugin()


def JobsAreBelowTheTenantOfTheirUser(cluster):
    """Where there is one: its weight is divided among the user's jobs by their shards."""
    cluster.use_plugin("below=%u")
    expect(cluster.gpushare("set", "--create", "alice", "weight=30").returncode == 0, "there is no tenant")
    jobs = [cluster.begin_busy("--gres=shard:%d" % shards, user=user) for shards, user in ((1, "alice"), (3, "alice"), (1, "bob"))]
    expect(cluster.tenants() == sorted(["alice/slurm-" + jobs[0], "alice/slurm-" + jobs[1], "slurm-" + jobs[2]]), cluster.tenants())
    cluster.await_shares(jobs, [18.75, 56.25, 25])
    expect_gone(cluster, *jobs)
    # One that ends while no agent runs goes from there, too.
    job = cluster.begin_busy("--gres=shard:2", user="alice")
    cluster.stop_agent()
    expect_gone_later(cluster, job, "alice/slurm-" + job)
    expect(cluster.gpushare("remove", "alice").returncode == 0, "something is below it")
    cluster.use_plugin()


def JobsAreBelowTheTenantOfTheirAccount(cluster):
    """As slurmctld has it, whatever the user's environment says."""
    cluster.use_plugin("below=%a")
    for account in "physics", "art":
        expect(cluster.gpushare("set", "--create", account, "weight=30").returncode == 0, "there is no tenant")
    os.environ["SLURM_JOB_ACCOUNT"] = "art"
    try:
        step = cluster.srun_busy("--gres=shard:2", "--account=physics", user="alice")
        job = cluster.begin_busy("--gres=shard:2", "--account=physics", user="alice")
        other = cluster.begin_busy("--gres=shard:2", "--account=nobody", user="bob")
    finally:
        del os.environ["SLURM_JOB_ACCOUNT"]
    wanted = sorted(["physics/slurm-" + job, "physics/slurm-" + step, "slurm-" + other])
    expect(cluster.tenants() == wanted, cluster.tenants())
    expect_gone(cluster, step, job, other)
    until("no account is kept", lambda: not list((WORK / "run").glob("slurm-account-*")))
    for account in "physics", "art":
        expect(cluster.gpushare("remove", account).returncode == 0, "something is below it")
    cluster.use_plugin()


def comment_of(cluster, job, *words):
    """The words of the job's AdminComment, once these are among them."""
    shown = until("job %s has the words %s" % (job, words), lambda: all(w in cluster.shown(job) for w in words) and cluster.shown(job))
    return dict(word.split("=") for word in shown.split()[1:])


def LimitsAndUseAreInTheJobsAdminComment(cluster):
    cluster.use_plugin("comment=admin")
    once = "%s --seconds 0.5" % (cluster.build / "bin/workloads/endless")
    wait = "while [ ! -e /mnt/out/go ]; do sleep 0.02; done"
    options = "--gres=shard:2", "--gpu-cap=40%", "--gpu-priority=idle"
    job = cluster.begin(*options, user="alice", what="sh -c '%s; %s'" % (wait, once))
    limits = ["gpushare:", "node=" + slurm_rig.NODE, "weight=20", "cap=40%", "mem=max", "priority=idle"]
    begun = comment_of(cluster, job, *limits)
    expect(begun["gpu_seconds"] == "0.000", begun)
    # What the administrator changes meanwhile is there in the end, with what the job used.
    expect(cluster.gpushare("set", "slurm-" + job, "weight=30").returncode == 0, "the weight is not set")
    (WORK / "out/go").touch()
    used = until("the use of job %s is logged" % job, lambda: cluster.logged_use(job))
    ended = comment_of(cluster, job, "weight=30", "cap=40%")
    expect(0.05 < float(ended["gpu_seconds"]) <= float(used[0]), "%s, %s" % (ended, used))
    expect(0 < float(ended["throttled_seconds"]) <= float(used[1]), "%s, %s" % (ended, used))
    # Also of a job without a script, and of one element of an array, which is not that of the others.
    said = cluster.srun("--gres=shard:1", "sh", "-c", "echo $SLURM_JOB_ID; %s >&2" % once)
    expect(float(comment_of(cluster, said.stdout.strip(), "weight=10")["gpu_seconds"]) > 0.05, said)
    script = 'sh -c "test $SLURM_ARRAY_TASK_ID = 0 || exec %s; exec %s"' % (once, cluster.busy())
    array = cluster.begin("--array=0-1", "--gres=shard:1", what=script)
    until("one has ended", lambda: cluster.queue() == [array + "_0"])
    expect(float(comment_of(cluster, array + "_1", "weight=10")["gpu_seconds"]) > 0.05, "nothing was used")
    expect(comment_of(cluster, array + "_0", "weight=10")["gpu_seconds"] == "0.000", "it has what another one used")
    cluster.cancel(array)
    cluster.use_plugin()


def UseOfCancelledJobsIsAccountedOnly(cluster):
    """slurmctld lets nobody write to a job that it has cancelled. slurmdbd does; here stands what it would be asked for."""
    cluster.replace("/usr/bin/sacctmgr", "#!/bin/sh\nprintf '%s\\n' \"$@\" >/mnt/asked.new; mv /mnt/asked.new /mnt/asked\n", 0o755)
    for place in "admin", "accounting":
        cluster.use_plugin("comment=" + place)
        job = cluster.begin_busy("--gres=shard:2")
        comment_of(cluster, job, "weight=20")
        cluster.cancel(job)
        until("it is said", lambda: "job %s: its AdminComment is as it was: Job has already finished" % job in cluster.log())
        expect(comment_of(cluster, job, "weight=20")["gpu_seconds"] == "0.000", "Slurm has changed: docs/slurm.md is wrong")
        expect(place == "accounting" or not cluster.text("asked"), "sacctmgr was called")
    asked = until("sacctmgr is called", lambda: cluster.text("asked").splitlines())
    expect(asked[:-1] == ["-i", "modify", "job", "where", "JobId=" + job, "set"], asked)
    expect(re.match("AdminComment=gpushare: node=.* weight=20 cap=max mem=max priority=normal gpu_seconds=", asked[-1]), asked)
    cluster.put_back("/usr/bin/sacctmgr")
    cluster.use_plugin()


def AStoppedSlurmctldHoldsUpNoNode(cluster):
    cluster.use_plugin("comment=admin")
    slurmctld = int((WORK / "slurmctld.pid").read_text())
    job = cluster.begin("--gres=shard:2", what="sh -c 'until [ -e /mnt/out/on ]; do sleep 0.02; done'")
    comment_of(cluster, job, "weight=20")
    os.kill(slurmctld, signal.SIGSTOP)
    try:
        (WORK / "out/on").touch()
        until("the step ends without it", lambda: "job %s: its AdminComment is as it was: no answer" % job in cluster.log())
    finally:
        os.kill(slurmctld, signal.SIGCONT)
    until("the job has ended", lambda: not cluster.queue() and cluster.node_state() == "idle")
    cluster.use_plugin()


def ANodeThatLostItsPowerIsAsBefore(cluster):
    """All that ran there is gone, and so is what was in memory; Slurm still has its jobs."""
    cluster.use_plugin()
    jobs = [cluster.begin_busy("--gres=shard:%d" % shards) for shards in (2, 6)]
    cluster.lose_power()
    cluster.start_agent()
    cluster.start_slurmd()
    expect(not cluster.tenants(), "memory outlived it: the test shows nothing")
    cluster.cancel(*jobs)
    expect(not cluster.tenants(), cluster.tenants())
    jobs = [cluster.begin_busy("--gres=shard:%d" % shards, user=user) for shards, user in ((2, "alice"), (6, "bob"))]
    cluster.await_shares(jobs, [25, 75])
    expect_gone(cluster, *jobs)


def AStoppedAgentHoldsUpNoJob(cluster):
    cluster.use_plugin()
    agent = cluster.status()["agent"]["pid"]
    os.kill(agent, signal.SIGSTOP)
    try:
        began = time.monotonic()
        said = cluster.srun("--gres=shard:2", "echo", "it ran")
        took = time.monotonic() - began
    finally:
        os.kill(agent, signal.SIGCONT)
    expect(said.stdout == "it ran\n" and "it does not answer" in said.stderr, said)
    expect(took < 20, "it took %.1f s" % took)


def SacctHasLimitsAndUse(cluster):
    """With the real slurmdbd: of jobs that ended by themselves, and of cancelled ones."""
    cluster.use_plugin("comment=accounting")
    ended = cluster.begin("--gres=shard:2", "--gpu-cap=40%", user="alice",
                          what="%s --seconds 0.5" % (cluster.build / "bin/workloads/endless"))
    array = cluster.begin("--array=0-1", "--gres=shard:1", user="bob")
    until("the array is on the GPU", lambda: sum(len(cluster.on_gpu(job)) for job in map(tenant_job, cluster.tenants())) >= 2)
    until("the first has ended", lambda: sorted(cluster.queue()) == [array + "_0", array + "_1"])
    cluster.shares([tenant_job(tenant) for tenant in cluster.tenants()], gpu_seconds=0.3)
    cluster.cancel(array)
    for job, state, weight in (ended, "COMPLETED", "20"), (array + "_0", "CANCELLED", "10"), (array + "_1", "CANCELLED", "10"):
        number, said, words = until("job %s is accounted for" % job, lambda job=job: accounted(job))
        used = until("its use is logged", lambda number=number: cluster.logged_use(number))
        expect(said.startswith(state) and words["weight"] == weight, "%s: %s %s" % (job, said, words))
        expect(float(words["gpu_seconds"]) <= float(used[0]), "%s: %s, but %s is logged" % (job, words, used))
    cluster.use_plugin()


def tenant_job(tenant):
    return tenant.rpartition("slurm-")[2]


def accounted(job):
    record = accounting.record(job)
    return record if float(record[2].get("gpu_seconds", 0)) > 0 else None


TESTS = [TwoJobsHaveTheirShards, OrdinaryUsersHaveTheirShards, AllThatAJobStartsIsInItsTenant, EachElementOfAnArrayIsAJob,
         OptionsReachTheTenant, WrongOptionsAreRefused, NobodyHasMoreThanTheNodeAllows,
         AStepMayHaveFewerShardsThanItsJob, WithoutAnAgentJobsRun,
         JobsAreBelowTheTenantOfTheirUser, JobsAreBelowTheTenantOfTheirAccount, LimitsAndUseAreInTheJobsAdminComment,
         UseOfCancelledJobsIsAccountedOnly, AStoppedSlurmctldHoldsUpNoNode, ANodeThatLostItsPowerIsAsBefore,
         AStoppedAgentHoldsUpNoJob]
ACCOUNTED = [SacctHasLimitsAndUse]  # where slurmdbd is


def run(build, wanted, is_accounted):
    cluster = slurm_rig.Cluster(build)

    def test_one(test, _began):
        if cluster.sim is None:
            cluster.start(accounting.start if is_accounted else None)
        test(cluster)

    logs = "slurmd.log", "slurmctld.log", "slurmdbd.log", "gpushared.log"
    return cases.run("Slurm", wanted, test_one, lambda: ((log, cluster.text(log)) for log in logs))


def main():
    build, *names = (word for word in sys.argv[1:] if not word.startswith("--"))
    wanted, accounted = cases.wanted(TESTS, names), cases.wanted(ACCOUNTED, names)
    without = accounting.skip_reason()
    if "--inside" in sys.argv:
        accounted = [] if without else accounted
        return run(build, wanted + accounted, bool(accounted))
    reason = slurm_rig.skip_reason()
    if not reason and not (pathlib.Path(build) / "lib/slurm/gpushare_spank.so").exists():
        reason = "the plugin was not built: Slurm's header is missing (package libslurm-dev)"
    if reason:
        cases.skip("Slurm", wanted + accounted, reason)
        return 0
    if without:
        cases.skip("Slurm", accounted, without)
    return slurm_rig.enter()


if __name__ == "__main__":
    sys.exit(main())
