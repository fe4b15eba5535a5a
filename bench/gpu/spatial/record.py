# SPDX-License-Identifier: Apache-2.0
"""What every result says of where it is from."""
import datetime
import platform
import subprocess
import sys


def origin(script, commit):
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                         capture_output=True, text=True).stdout.strip().split(", ")
    return {"date": datetime.date.today().isoformat(), "gpu": gpu[0], "driver": gpu[-1], "kernel": platform.release(),
            "commit": commit, "command": f"bench/gpu/spatial/{script} " + " ".join(sys.argv[1:])}
