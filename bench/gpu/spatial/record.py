# SPDX-License-Identifier: Apache-2.0
"""What results are made with: where each is from, and what it says of many values."""
import datetime
import platform
import subprocess
import sys


def quantile(values, part):
    """Of values in any order; None: there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None


def origin(script, commit):
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                         capture_output=True, text=True).stdout.strip().split(", ")
    return {"date": datetime.date.today().isoformat(), "gpu": gpu[0], "driver": gpu[-1], "kernel": platform.release(),
            "commit": commit, "command": f"bench/gpu/spatial/{script} " + " ".join(sys.argv[1:])}
