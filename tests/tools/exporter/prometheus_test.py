#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The exporter, the alert rules and the dashboard's queries with a real Prometheus: prometheus_test.py BUILD [NAME...]

All tests ask one Prometheus (prometheus_rig.py), and the last ends what it scrapes. Prints GoogleTest's lines; status 0 when
nothing failed.
"""
import contextlib
import json
import pathlib
import re
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import prometheus_rig  # noqa: E402
import cases  # noqa: E402
from prometheus_rig import LONG_S, TOP, until  # noqa: E402

# What Grafana puts into a query where a person has chosen one machine and all of the rest.
VARIABLES = {"instance": "made-up", "gpu": ".*", "tenant": ".*", "__rate_interval": "1m", "__range": "1h"}


def expect(is_so, what):
    assert is_so, what


def page():
    return (TOP / "docs/metrics.md").read_text(encoding="utf-8")


def dashboard():
    return json.loads((TOP / "tools/exporter/grafana-dashboard.json").read_text(encoding="utf-8"))


def filled(query):
    return re.sub(r"\$\{?(\w+)\}?", lambda name: VARIABLES[name[1]], query)


def await_data(rig, query, what):
    return until("%s has data: %s" % (what, query), lambda: rig.query(query), LONG_S)


def AllThatThePageNamesIsThere(rig):
    names = [name for row in re.findall(r"^\| (`gpushare_.*?) \|", page(), re.M) for name in re.findall(r"`(\w+)`", row)]
    expect(len(names) > 40, "the page has another form: %s" % names)
    known = until("what is known of the metrics", lambda: rig.get("/api/v1/metadata"), LONG_S)
    for name in names:
        expect(name in known and known[name][0]["help"], "%s has no help" % name)
        kind = known[name][0]["type"]
        expect(kind == {"_total": "counter"}.get(name[-6:], kind) and kind in ("counter", "gauge", "histogram"), (name, kind))
        await_data(rig, name + "_bucket" if kind == "histogram" else name, "the page's metric")
    others = {name for name in known if name.startswith("gpushare_")} - set(names)
    expect(not others, "the page is silent on %s" % others)


def SharesAreThoseOfTheSettings(rig):
    def share(tenant):
        return rig.value('gpushare_tenant_share_ratio{instance="real",tenant="%s"}' % tenant) or 0
    until("shares of 3 to 1", lambda: abs(share("three") - 0.75) < 0.03 and abs(share("one") - 0.25) < 0.03, LONG_S)
    for tenant, target in ("three", 0.75), ("one", 0.25):
        expect(abs(rig.value('gpushare_tenant_target_share_ratio{instance="real",tenant="%s"}' % tenant) - target) < 0.01, tenant)
    used = 'sum(increase(gpushare_tenant_gpu_seconds_total{instance="real"%s}[1m]))'
    until("three times the GPU seconds", lambda: abs((rig.value(used % ',tenant="three"') or 0) /
                                                     (rig.value(used % "") or 1) - 0.75) < 0.05, LONG_S)
    expect(rig.value('gpushare_agent_info{instance="real",simulated="true"}') == 1, "it is not the simulated GPU")


def EveryPanelHasData(rig):
    """And each of its lines a name of its own, with a label wherever the name asks for one."""
    for panel in dashboard()["panels"]:
        lines = []
        for target in panel["targets"]:
            for labels, _ in await_data(rig, filled(target["expr"]), panel["title"]):
                name = re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), target["legendFormat"])
                wanted = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
                expect(all(labels.get(label) for label in wanted), "%s: %s of %s" % (panel["title"], wanted, labels))
                lines.append(name)
        if panel["type"] != "table":
            expect(len(set(lines)) == len(lines), "%s has lines of one name: %s" % (panel["title"], sorted(lines)))
    for annotation in dashboard()["annotations"]["list"]:
        await_data(rig, filled(annotation["expr"]), annotation["name"])


def EveryVariableHasValues(rig):
    found = 0
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", filled(variable["query"]["query"])).groups()
            expect(rig.get("/api/v1/label/%s/values" % label, **{"match[]": selector}), variable["name"])
            found += 1
    expect(found == 3, found)


def ThePagesQueriesAreAnswered(rig):
    blocks = re.findall(r"(?:^    .*\n)+", page().partition("## Queries")[2].partition("## Cost")[0], re.M)
    expect(len(blocks) == 5, "the page has another form: %d" % len(blocks))
    by_tenant, by_job, share_by_pod, by_pod, beside_dcgm = blocks
    await_data(rig, by_tenant, "GPU hours of tenants")
    jobs = await_data(rig, by_job, "GPU seconds of jobs")
    expect({labels["slurm_job"] for labels, _ in jobs} == {"7"}, jobs)
    await_data(rig, beside_dcgm, "the share beside DCGM's")
    # No pod can be made here; with promtool metrics_test.cc has some.
    expect(rig.query(share_by_pod) == rig.query(by_pod) == [], "there are pods")


def TheNodeExporterServesTheFile(rig):
    await_data(rig, 'node_textfile_scrape_error{instance="node"}', "the node exporter")
    expect(rig.value('node_textfile_scrape_error{instance="node"}') == 0, "it does not read the file")
    until("the file's metrics", lambda: rig.value('gpushare_up{instance="node"}') == 1, LONG_S)

    def names_of(machine):
        return {labels["__name__"] for labels, _ in rig.query('{instance="%s",__name__=~"gpushare_.*"}' % machine)}
    until("the same metrics", lambda: names_of("node") == names_of("made-up"), LONG_S)


class SlowReaders:
    """More connections than the exporter serves at once, each of which asks for more pages than the system keeps for it, and
    reads none of them. One that is lost is opened again within a second."""
    REQUESTS = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 300

    def __init__(self, port):
        self.port, self.is_over = port, threading.Event()
        self.held = []
        self.have_begun = threading.Event()
        self.thread = threading.Thread(target=self.hold)

    def open(self):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(LONG_S)
        client.connect(("127.0.0.1", self.port))
        with contextlib.suppress(OSError):  # it may be lost already
            client.sendall(self.REQUESTS)
        client.setblocking(False)
        return client

    @staticmethod
    def is_lost(client):
        """It has data that is not read; an end behind that is seen by writing."""
        try:
            client.send(b"G")
            return False
        except BlockingIOError:
            return False
        except OSError:
            return True

    def hold(self):
        self.held = [self.open() for _ in range(64)]
        self.have_begun.set()
        while not self.is_over.wait(1):
            self.held = [self.open() if self.is_lost(client) else client for client in self.held]

    def __enter__(self):
        self.thread.start()
        assert self.have_begun.wait(LONG_S), "the exporter takes no connections"
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        for client in self.held:
            client.close()


def SlowReadersKeepItNotFromTheMetrics(rig):
    with SlowReaders(rig.ports["made-up"]):
        begun = time.time()

        def answered():
            return [is_up for at, is_up in rig.samples('up{instance="made-up"}', LONG_S) if at > begun]
        until("ten scrapes", lambda: len(answered()) >= 10, LONG_S)
        expect(sum(answered()) > len(answered()) / 2, "of these scrapes some were answered (1): %s" % answered())


def EveryAlertFires(rig):
    """With texts that name the machine, and the tenant where the rule is of one."""
    rules = {rule["name"]: rule for group in rig.get("/api/v1/rules")["groups"] for rule in group["rules"]}
    said = re.findall(r"^ +- alert: (\w+)$", prometheus_rig.ALERTS.read_text(), re.M)
    expect(sorted(said) == sorted(rules) and len(said) >= 9, "%s, but the file has %s" % (sorted(rules), said))
    expect(re.findall(r"^\| `(Gpushare\w+)` ", page(), re.M) == said, "the page has other alerts")

    def firing(name):
        return [alert for alert in rig.get("/api/v1/alerts")["alerts"]
                if alert["state"] == "firing" and alert["labels"]["alertname"] == name]
    expect(not [alert for alert in firing("GpushareAgentDown") if alert["labels"]["instance"] == "real"], "the agent runs")
    rig.end("agent")
    until("the agent is missed", lambda: firing("GpushareAgentDown"), LONG_S)
    rig.end("exporter-real")
    until("the exporter is missed", lambda: firing("GpushareExporterDown"), LONG_S)
    for name in said:
        if name != "GpushareAgentDown":  # with its exporter it has gone
            until("%s fires" % name, lambda name=name: firing(name), LONG_S)
        expect(rules[name]["health"] == "ok", rules[name])
        for alert in firing(name):
            texts = " ".join(alert["annotations"].values())
            expect(alert["labels"]["instance"] in ("real", "made-up", "node") and alert["labels"]["instance"] in texts, alert)
            expect("<" not in texts and "{{" not in texts and "  " not in texts and not texts.startswith(" "), alert)
            expect("tenant" not in alert["labels"] or alert["labels"]["tenant"] in texts, alert)


TESTS = [AllThatThePageNamesIsThere, SharesAreThoseOfTheSettings, EveryPanelHasData, EveryVariableHasValues,
         ThePagesQueriesAreAnswered, TheNodeExporterServesTheFile, SlowReadersKeepItNotFromTheMetrics, EveryAlertFires]


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # not without what follows `finally`
    build, *names = (word for word in sys.argv[1:] if not word.startswith("--"))
    prometheus_rig.find(build)
    tests = cases.wanted(TESTS, names)
    reason = prometheus_rig.skip_reason()
    if reason:
        cases.skip("Prometheus", tests, reason)
        return 0
    if TheNodeExporterServesTheFile in tests and not prometheus_rig.has_node_exporter():
        tests.remove(TheNodeExporterServesTheFile)
        cases.skip("Prometheus", [TheNodeExporterServesTheFile], "the node exporter is not installed (prometheus-node-exporter)")
    rig = prometheus_rig.Rig(build)

    def test_one(test, _began):
        if not rig.running:
            rig.start()
        test(rig)

    try:
        return cases.run("Prometheus", tests, test_one, rig.logs)
    finally:
        rig.close()


if __name__ == "__main__":
    sys.exit(main())
