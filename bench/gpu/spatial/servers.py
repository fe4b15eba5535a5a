# SPDX-License-Identifier: Apache-2.0
"""What the programs of a comparison run under: NVIDIA's MPS, or gpushared."""
import json
import os
import subprocess
import sys
import time

# A configuration of two tenants, a and b; to be formatted with their sm_percent.
TWO_PARTS = '[gpu.0]\nsharing = "spatial"\n[tenant.a]\nsm_percent = {}\n[tenant.b]\nsm_percent = {}\n'


class Native:
    """Nothing: time slices."""

    environment = {}

    def command(self, tenant, words):
        del tenant
        return words

    def end(self):
        pass


class Mps(Native):
    """A server of our own, in `folder`."""

    def __init__(self, folder):
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": folder + "/pipe", "CUDA_MPS_LOG_DIRECTORY": folder + "/log"}
        for path in self.environment.values():
            os.makedirs(path)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True, env=os.environ | self.environment, timeout=60)

    def end(self):
        subprocess.run(["nvidia-cuda-mps-control"], input="quit -t 5\n", text=True, capture_output=True,
                       env=os.environ | self.environment, timeout=60)


class Agent:
    """gpushared with `config`, which shares the GPU spatially."""

    environment = {}

    def __init__(self, folder, build, config, arguments=()):
        self.folder, self.pipe = folder, folder + "/mps"
        self.tool = [str(build / "bin/gpushare"), "--socket", folder + "/agent.sock", "--region",
                     "/" + os.path.basename(folder)]
        with open(folder + "/gpushare.toml", "w") as file:
            file.write(config)
        self.log = open(folder + "/agent.log", "w+")
        self.process = subprocess.Popen([str(build / "bin/gpushared"), *self.tool[1:], "--config",
                                         folder + "/gpushare.toml", *arguments], stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 60
        # Until it runs its MPS server: programs that start before would not be clients.
        while "control daemon started" not in open(self.log.name).read():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit("gpushared:\n" + open(self.log.name).read())
            time.sleep(0.1)

    def command(self, tenant, words):
        return [*self.tool, "run", "--shim", "--tenant", tenant, "--", *words]

    def uses(self):
        """What each tenant has of the first GPU, as `gpushare status --json` says it."""
        seen = subprocess.run([*self.tool, "status", "--json"], capture_output=True, text=True, timeout=20)
        return {tenant["name"]: tenant["gpus"][0] for tenant in json.loads(seen.stdout)["tenants"]
                if tenant.get("gpus")}

    def end(self):
        self.process.terminate()
        self.process.wait(60)
        subprocess.run(["nvidia-cuda-mps-control"], input="quit -t 5\n", text=True, capture_output=True,
                       env=os.environ | {"CUDA_MPS_PIPE_DIRECTORY": self.pipe}, timeout=60)
