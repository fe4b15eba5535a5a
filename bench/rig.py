# SPDX-License-Identifier: Apache-2.0
"""What the scripts of bench/gpu and tests/gpu share: starts an agent, an MPS server and programs, and ends them surely.

Program, Mps and Agent are context managers. Leaving the `with` block ends what was started, with all its children,
also after an exception; importing this module makes SIGTERM one. An agent that has to be killed is followed by
`gpushared --recover`, so that nothing stays frozen. Every wait has a limit. With GPUSHARE_SIM (the socket of a
gpushare-sim) and LD_LIBRARY_PATH=BUILD/lib/sim in the environment, all of it uses that simulated GPU.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

# A configuration of two tenants, a and b; to be formatted with their sm_percent.
TWO_PARTITIONS = '[gpu.0]\nsharing = "spatial"\n[tenant.a]\nsm_percent = {}\n[tenant.b]\nsm_percent = {}\n'
READY_S = 600  # the limit until a program has loaded and warmed up what it works with
AT_ONCE = 16  # programs that start at a time
MPS = "nvidia-cuda-mps-control"

signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

Outcome = collections.namedtuple("Outcome", "code seconds out err")


def build_folder(text):
    """A type for argparse: the absolute path of a folder that `make` or `make dist` has filled, or that holds one."""
    given = pathlib.Path(text).resolve()
    for folder in (given, *sorted(given.glob("gpushare-*"))):
        if (folder / "bin/gpushared").exists():
            return folder
    raise argparse.ArgumentTypeError(f"BUILD is a folder with bin/gpushared in it; {text} is none")


def parser(description, **build):
    """The options that most scripts have. `build`: what add_argument takes, to make BUILD optional."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("build", type=build_folder, help="the folder that make or make dist has filled", **build)
    made.add_argument("--out", type=pathlib.Path, help="the file to which this run is added, as one line of JSON")
    made.add_argument("--commit", help="the commit that is measured (default: the repository's HEAD)")
    return made


def json_lines(text):
    """Those lines of a text that are JSON objects."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def shim_drive(build, *options, pci=None):
    """The words that run a program under the shim without an agent; the program's own words follow. `pci`: the address
    of the GPU; by default those of all real GPUs, or that of the simulated one."""
    pci = pci or ("0000:10:00.0" if "GPUSHARE_SIM" in os.environ else None)
    return [build / "bin/tests/shim_drive", *(["--pci", pci] if pci else []), *options, "--"]


_commands, _is_stopping = set(), threading.Event()  # the processes of run(), and whether it may start no more


def stop():
    """For scripts that call run() on several threads: ends these commands, and makes every later call raise."""
    _is_stopping.set()
    for process in list(_commands):
        _kill(process)


def _kill(process):
    """Ends a process that leads its own session, and all its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(words, timeout, environment=None):
    """Runs a command to its end and returns an Outcome, whose code is a text when it did not end in `timeout` seconds.
    It writes into files: a pipe that a frozen program holds open would keep this script waiting."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = time.monotonic()
        process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                   env=os.environ | (environment or {}), start_new_session=True)
        _commands.add(process)
        try:
            code = process.wait(0 if _is_stopping.is_set() else timeout)
        except subprocess.TimeoutExpired:
            code = f"did not end in {timeout:g} s"
        finally:
            _kill(process)
            _commands.discard(process)
        if _is_stopping.is_set():
            raise InterruptedError(f"{words[0]}: the script is ending")
        seconds = time.monotonic() - began
        out.seek(0)
        err.seek(0)
        return Outcome(code, seconds, out.read(), err.read())


class Program:
    """A running program that prints JSON, a value a line. `heard` is called with each value, on a thread that reads;
    otherwise the values are in `said`, in their order. Raises TimeoutError where a wait reaches its limit."""

    def __init__(self, words, environment=None, heard=None):
        self.said, self._taken, self._is_over, self._changed = [], 0, False, threading.Condition()
        self._heard, self._errors = heard or self._keep, tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self._errors, text=True, start_new_session=True,
                                        env=os.environ | (environment or {}))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                self._heard(json.loads(line))
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _keep(self, value):
        with self._changed:
            self.said.append(value)
            self._changed.notify_all()

    def has_ended(self):
        return self.process.poll() is not None

    def take(self, limit):
        """The next value that was not taken yet, or None when the program ends before it prints one."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.said) > self._taken or self._is_over, limit):
                raise TimeoutError(f"{self.process.args}: it printed nothing for {limit:g} s")
            if len(self.said) == self._taken:
                return None
            self._taken += 1
            return self.said[self._taken - 1]

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def errors(self):
        """What it has written to standard error so far."""
        return os.pread(self._errors.fileno(), 1 << 24, 0).decode(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _kill(self.process)
        self._reader.join(5)
        self._errors.close()


def has_become(program, name):
    """Whether `gpushare run` has become the program of that name (or has ended): the agent knows it by then."""
    comm = pathlib.Path("/proc", str(program.process.pid), "comm")
    return program.has_ended() or comm.read_text().strip() == name


def batches(things):
    """So many of them at a time as may start at once."""
    return [things[first:first + AT_ONCE] for first in range(0, len(things), AT_ONCE)]


def start_in_order(stack, commands, name, environment=None):
    """Starts `gpushare run ... name` one after the other: the place of each job is after those before it."""
    programs = []
    for command in commands:
        programs.append(stack.enter_context(Program(command, environment)))
        while not has_become(programs[-1], name):
            time.sleep(0.001)
    return programs


def begin_together(programs, line):
    """Waits until each program has said {"ready": true}, then tells all of them the line. Returns None, or what the
    first one wrote that did not get so far."""
    for program in programs:
        if not (program.take(READY_S) or {}).get("ready"):
            return program.errors()[-1500:] or "it ended before it was ready"
    for program in programs:
        program.tell(line)
    return None


class Simulation:
    """A simulated GPU of this script's own: whatever starts within the `with` block finds it in place of real ones.
    `options`: of gpushare-sim."""

    def __init__(self, build, *options):
        self._build, self._options = build, options

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="gpushare-sim-", ignore_cleanup_errors=True)
        socket = self._folder.name + "/sim.sock"
        self._process = subprocess.Popen([str(self._build / "bin/gpushare-sim"), "--socket", socket, *self._options],
                                         stdin=subprocess.DEVNULL, start_new_session=True)
        end = time.monotonic() + 20
        while not os.path.exists(socket):
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                sys.exit("gpushare-sim does not serve")
            time.sleep(0.02)
        os.environ.update(GPUSHARE_SIM=socket, LD_LIBRARY_PATH=str(self._build / "lib/sim"))
        return self

    def __exit__(self, *_):
        _kill(self._process)
        self._folder.cleanup()


class Native:
    """Nothing between the programs and the driver, which shares the GPU by time slices."""

    environment = {}

    def command(self, tenant, words):
        """The words that run a program in a tenant."""
        del tenant
        return words

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def _quit_mps(folder):
    subprocess.run([MPS], input="quit -t 5\n", text=True, capture_output=True, timeout=60,
                   env=os.environ | {"CUDA_MPS_PIPE_DIRECTORY": folder})


class Mps(Native):
    """NVIDIA's MPS, a server of this script's own."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="gpushare-mps-", ignore_cleanup_errors=True)
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": self._folder.name, "CUDA_MPS_LOG_DIRECTORY": self._folder.name}
        try:
            subprocess.run([MPS, "-d"], check=True, env=os.environ | self.environment, timeout=60)
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def __exit__(self, *_):
        _quit_mps(self._folder.name)
        self._folder.cleanup()


class Agent(Native):
    """gpushared with a socket, a control plane and a configuration (TOML) of its own, in `folder`."""

    def __init__(self, build, config=""):
        self._build, self._config = build, config

    def __enter__(self):
        self._temporary = tempfile.TemporaryDirectory(prefix="gpushare-rig-", ignore_cleanup_errors=True)
        self.folder = self._temporary.name
        self._region = "/" + os.path.basename(self.folder)
        config, self._log = self.folder + "/gpushare.toml", self.folder + "/agent.log"
        ours = ["--socket", self.folder + "/agent.sock", "--region", self._region]
        self.tool = [str(self._build / "bin/gpushare"), *ours]
        pathlib.Path(config).write_text(self._config.replace("{folder}", self.folder))
        self._words = [str(self._build / "bin/gpushared"), *ours, "--config", config]
        self.start()
        try:
            self._await()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        """Also for a script that has ended `process`."""
        with open(self._log, "a") as log:
            self.process = subprocess.Popen(self._words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)

    def _await(self):
        """Until it answers and, where it shares spatially, runs MPS: programs that start before would be no clients."""
        needs_mps, end = 'sharing = "spatial"' in self._config, time.monotonic() + 60
        while not (self.ask("thaw", "default").returncode == 0 and
                   (not needs_mps or "control daemon started" in self.log())):
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit("gpushared does not serve:\n" + self.log())
            time.sleep(0.1)

    def log(self):
        return pathlib.Path(self._log).read_text(errors="replace")

    def command(self, tenant, words, shim=True):
        return [*self.tool, "run", *(["--shim"] * shim), "--tenant", tenant, "--", *words]

    def ask(self, *words):
        """Runs one command of `gpushare` on this agent."""
        return subprocess.run([*self.tool, *words], capture_output=True, text=True, timeout=20)

    def status(self):
        """What `gpushare status --json` says; {} where that fails."""
        seen = self.ask("status", "--json")
        return json.loads(seen.stdout) if seen.returncode == 0 else {}

    def tenants(self):
        """What it says of each tenant."""
        return {tenant["name"]: tenant for tenant in self.status().get("tenants", [])}

    def uses(self):
        """What each tenant has of the first GPU."""
        return {name: tenant["gpus"][0] for name, tenant in self.tenants().items() if tenant.get("gpus")}

    def used_ns(self, tenant):
        """What a tenant has been charged of the first GPU so far."""
        return self.uses().get(tenant, {}).get("gpu_time_ns", 0)

    def recover(self):
        """What `gpushared --recover` says of this agent's control plane."""
        return run([self._build / "bin/gpushared", "--recover", "--region", self._region], 60)

    def stop(self):
        """Ends the agent, and returns its exit code, or a text when it had to be killed. The control plane stays."""
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            _kill(self.process)
            self.recover()
            return "it did not end in 60 s"

    def __exit__(self, *_):
        self.stop()
        if 'sharing = "spatial"' in self._config:
            with contextlib.suppress(OSError):  # where there is no MPS
                _quit_mps(self.folder + "/mps")
        for end in ("", ".lock"):  # of the control plane, which outlives an agent
            pathlib.Path("/dev/shm" + self._region + end).unlink(missing_ok=True)
        self._temporary.cleanup()
