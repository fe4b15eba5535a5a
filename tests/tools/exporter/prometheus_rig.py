# SPDX-License-Identifier: Apache-2.0
"""A Prometheus that scrapes two machines, each every second: `real`, an agent with two busy tenants on a simulated GPU, and
`made-up`, a control plane that has something of everything. It has our alert rules, but waits one second where they wait longer.

Ordinary users' programs alone, below a folder in /tmp; the system ends what has been started when the script ends.
"""
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "slurm"))
from slurm_rig import until  # noqa: E402

TOP = HERE.parents[2]
ALERTS = TOP / "tools/exporter/alerts.yml"
LONG_S = 120
CONFIG = """global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: gpushare
    static_configs:
      - {{targets: ["127.0.0.1:{real}"], labels: {{instance: real}}}}
      - {{targets: ["127.0.0.1:{made_up}"], labels: {{instance: made-up}}}}
  - job_name: others
    static_configs:
      - {{targets: ["127.0.0.1:{dcgm}"], labels: {{instance: dcgm}}}}
      - {{targets: [{node}], labels: {{instance: node}}}}
"""
# What NVIDIA's exporter says of the made-up machine's first GPU.
DCGM = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-00000000-0000-0000-0000-000000000000"} 95\n'


def find(build):
    """Has what was fetched found like what is installed."""
    os.environ["PATH"] = "%s:%s" % (pathlib.Path(build).resolve() / "prometheus/usr/bin", os.environ["PATH"])


def skip_reason():
    return None if shutil.which("prometheus") else "prometheus is not installed (package prometheus, or make test-metrics)"


def has_node_exporter():
    return shutil.which("prometheus-node-exporter") is not None


class Dcgm(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(DCGM.encode())

    def log_message(self, *_):
        pass


class Rig:
    def __init__(self, build):
        self.bin = pathlib.Path(build).resolve() / "bin"
        self.folder = tempfile.TemporaryDirectory(prefix="gpushare-prometheus-")
        self.work = pathlib.Path(self.folder.name)
        self.running = {}
        name = "/gpushare-prometheus-test-%d" % os.getpid()
        self.regions = {"real": name + "-real", "made-up": name + "-made-up"}
        os.environ.update(GPUSHARE_SOCKET=str(self.work / "agent.sock"), GPUSHARE_REGION=self.regions["real"],
                          GPUSHARE_SIM=str(self.work / "sim.sock"), LD_LIBRARY_PATH=str(self.bin.parent / "lib/sim"))

    def start(self):
        self.start_machines()
        self.start_prometheus()

    def begin(self, name, *words):
        """Starts a program, all of whose words are kept in a file."""
        with self.log(name).open("a") as log:
            self.running[name] = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *map(str, words)], cwd=self.work,
                                                  stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        return self.running[name]

    def log(self, name):
        return self.work / (name + ".log")

    def logs(self):
        return [(log.name, log.read_text(errors="replace")) for log in sorted(self.work.glob("*.log"))]

    def said(self, name, pattern):
        """The first group of what a program says, when it has said it."""
        def look():
            assert self.running[name].poll() is None, "%s has ended: %s" % (name, self.log(name).read_text())
            return re.search(pattern, self.log(name).read_text())
        return until("%s says %s" % (name, pattern), look, LONG_S)[1]

    def end(self, name):
        self.running[name].terminate()
        self.running.pop(name).wait(LONG_S)

    def close(self):
        for name in reversed(list(self.running)):
            self.running[name].kill()
            self.running.pop(name).wait()
        for region in self.regions.values():
            for file in pathlib.Path("/dev/shm").glob(region[1:] + "*"):  # and its lock
                file.unlink()
        self.folder.cleanup()

    def start_machines(self):
        self.begin("sim", self.bin / "gpushare-sim", "--socket", self.work / "sim.sock")
        until("gpushare-sim", (self.work / "sim.sock").exists, LONG_S)
        self.begin("agent", self.bin / "gpushared", "--sim=" + str(self.work / "sim.sock"), "--config", self.work / "gpushare.toml")
        until("the agent answers", lambda: subprocess.run([self.bin / "gpushare", "status"], capture_output=True).returncode == 0,
              LONG_S)
        for tenant, weight in ("three", 300), ("one", 100):
            self.begin(tenant, self.bin / "gpushare", "run", "--tenant", tenant, "--weight", weight, "--",
                       self.bin / "workloads/endless", "--seconds", 3600)
        self.begin("fake_plane", self.bin / "tests/fake_plane", self.regions["made-up"], 7, 2, "all")
        self.ports = {}
        for machine, region in self.regions.items():
            self.begin("exporter-" + machine, self.bin / "gpushare-exporter", "--listen", "127.0.0.1:0", "--region", region)
            self.ports[machine] = int(self.said("exporter-" + machine, r"at port (\d+)\n"))
        dcgm = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dcgm)
        self.ports["dcgm"] = dcgm.server_port
        threading.Thread(target=dcgm.serve_forever, daemon=True).start()
        if has_node_exporter():
            self.start_node_exporter()

    def start_node_exporter(self):
        files = self.work / "textfile"
        files.mkdir()
        self.begin("textfile", self.bin / "gpushare-exporter", "--textfile", files / "gpushare.prom", "--interval", 1, "--region",
                   self.regions["made-up"])
        self.begin("node", "prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
                   "--collector.textfile.directory", files, "--web.listen-address", "127.0.0.1:0")
        self.ports["node"] = int(self.said("node", r"Listening on\S* .*address=\S*:(\d+)"))

    def start_prometheus(self):
        (self.work / "alerts.yml").write_text(re.sub(r"\bfor: \w+", "for: 1s", ALERTS.read_text()))
        node = '"127.0.0.1:%d"' % self.ports["node"] if "node" in self.ports else ""
        (self.work / "prometheus.yml").write_text(CONFIG.format(real=self.ports["real"], made_up=self.ports["made-up"],
                                                                dcgm=self.ports["dcgm"], node=node))
        self.begin("prometheus", "prometheus", "--config.file", self.work / "prometheus.yml", "--storage.tsdb.path",
                   self.work / "data", "--web.listen-address", "127.0.0.1:0")
        self.url = "http://127.0.0.1:%s" % self.said("prometheus", r"Listening on\S* .*address=\S*:(\d+)")
        until("Prometheus is ready", self.is_ready, LONG_S)
        for machine in self.regions:
            until("%s is scraped" % machine, lambda machine=machine: self.value('up{instance="%s"}' % machine) == 1, LONG_S)

    # --- what Prometheus says

    def is_ready(self):
        try:
            with urllib.request.urlopen(self.url + "/-/ready", timeout=LONG_S):
                return True
        except urllib.error.HTTPError:
            return False

    def get(self, path, **parameters):
        """The data of an answer; raises when Prometheus refuses."""
        try:
            with urllib.request.urlopen(self.url + path + "?" + urllib.parse.urlencode(parameters), timeout=LONG_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError("%s %s: %s" % (path, parameters, error.read().decode(errors="replace"))) from None

    def query(self, expression):
        """The series of a query that have a number now: labels and value of each."""
        data = self.get("/api/v1/query", query=expression)
        found = [(series["metric"], float(series["value"][1])) for series in data["result"]]
        return [(labels, value) for labels, value in found if value == value]

    def value(self, expression):
        found = self.query(expression)
        return found[0][1] if len(found) == 1 else None

    def samples(self, selector, seconds):
        """The samples of one series in the last seconds: time and value of each."""
        result = self.get("/api/v1/query", query="%s[%ds]" % (selector, seconds))["result"]
        return [(at, float(value)) for series in result for at, value in series["values"]]
