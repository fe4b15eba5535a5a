# SPDX-License-Identifier: Apache-2.0
"""slurmdbd with a database of its own, for a cluster of slurm_rig.py: start(cluster), before there is a slurmctld."""
import shutil
import subprocess

import slurm_rig
from slurm_rig import WORK, until

PROGRAMS = {"mariadbd": "mariadb-server-core", "my_print_defaults": "mariadb-client-core", "slurmdbd": "slurmdbd"}
CONFIG = """AuthType=auth/munge
AuthInfo=socket=/mnt/munge/socket
DbdHost=localhost
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StorageUser=root
StoragePass=none
StorageLoc=slurm
LogFile=/mnt/slurmdbd.log
PidFile=/mnt/slurmdbd.pid
"""
OF_CLUSTER = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePass=/mnt/munge/socket
"""
LAST = "", "usage_day_", "usage_hour_", "usage_month_"


def skip_reason():
    missing = [package for name, package in PROGRAMS.items() if not shutil.which(name)]
    return "slurmdbd and a database are not installed (packages %s)" % " ".join(missing) if missing else None


def sacctmgr(*words):
    return subprocess.run(["timeout", str(slurm_rig.LONG_S), "sacctmgr", "-i", *words], capture_output=True, text=True)


def start(cluster):
    options = ["--no-defaults", "--datadir=/mnt/db", "--user=root", "--innodb-log-file-size=4M"]
    (WORK / "db").mkdir()
    subprocess.run(["mariadb-install-db", *options, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"],
                   check=True, capture_output=True)
    subprocess.Popen(
        ["mariadbd", *options, "--skip-grant-tables", "--skip-networking=0", "--bind-address=127.0.0.1", "--socket=/mnt/db/socket",
         "--pid-file=/mnt/mariadbd.pid", "--innodb-buffer-pool-size=32M"], stderr=(WORK / "mariadbd.log").open("w"))
    until("the database answers", (WORK / "db/socket").exists)
    (WORK / "slurmdbd.conf").write_text(CONFIG)
    (WORK / "slurmdbd.conf").chmod(0o600)
    with (WORK / "slurm.conf").open("a") as config:
        config.write(OF_CLUSTER)
    subprocess.run(["slurmdbd"], check=True)
    until("slurmdbd answers", lambda: sacctmgr("list", "cluster").returncode == 0)
    assert sacctmgr("add", "cluster", "test").returncode == 0, "slurmdbd takes no cluster"
    # It makes the cluster's tables one after the other, and these are the last.
    until("the cluster has its tables", lambda: all((WORK / ("db/slurm/test_wckey_%stable.ibd" % kind)).exists() for kind in LAST))
    cluster.elsewhere += ["mariadbd.pid", "slurmdbd.pid"]


def record(job):
    """The job's number as slurmd has it, its state, and the words of its AdminComment."""
    said = subprocess.run(["sacct", "-X", "-n", "-P", "-j", job, "-o", "JobIDRaw,State,AdminComment"], capture_output=True,
                          text=True).stdout
    number, state, comment = (said.strip().split("|") + ["", "", ""])[:3]
    return number, state, dict(word.split("=") for word in comment.split()[1:])
