#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether Grafana would read the dashboard, by a schema (dashboard_schema.py), as no Grafana is at hand: dashboard_test.py BUILD

Prints GoogleTest's lines; status 0 when nothing failed.
"""
import copy
import itertools
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "slurm")]
import cases  # noqa: E402
import dashboard_schema  # noqa: E402

try:
    import jsonschema
except ImportError:
    jsonschema = None

DASHBOARD = HERE.parents[2] / "tools/exporter/grafana-dashboard.json"
BUILT_IN = {"__rate_interval", "__interval", "__range"}  # variables of Grafana's own


def expect(is_so, what):
    assert is_so, what


def errors_of(dashboard):
    found = jsonschema.Draft7Validator(dashboard_schema.SCHEMA).iter_errors(dashboard)
    return ["%s: %s" % ("/".join(map(str, error.absolute_path)), error.message) for error in found]


def ItHasTheFormThatGrafanaReads(dashboard):
    jsonschema.Draft7Validator.check_schema(dashboard_schema.SCHEMA)
    expect(not errors_of(dashboard), errors_of(dashboard))


def WhatGrafanaWouldNotReadIsFound(dashboard):
    """Each line: a place in the dashboard, and what is put there (None: nothing is there any more)."""
    drawn = next(i for i, panel in enumerate(dashboard["panels"]) if panel["type"] == "timeseries")
    for place, value in ((["title"], None), (["uid"], "a b"), (["schemaVersion"], "38"), (["panels"], {}),
                         (["time", "from"], "an hour ago"), (["refresh"], "often"), (["annotation"], {"list": []}),
                         (["panels", 0, "type"], "graph"), (["panels", 0, "gridPos", "w"], 25),
                         (["panels", 0, "datasource"], "Prometheus"), (["panels", 0, "targets"], []),
                         (["panels", 0, "targets", 0, "refId"], None), (["panels", 0, "targets", 0, "query"], "up"),
                         (["panels", 0, "fieldConfig", "defaults", "mappings", 0, "type"], "values"),
                         (["panels", 0, "options", "colorMode"], "red"),
                         (["panels", drawn, "options", "legend", "showLegend"], None),
                         (["panels", drawn, "options", "tooltip", "mode"], "all"),
                         (["panels", drawn, "fieldConfig", "defaults", "custom", "stacking", "mode"], "stacked"),
                         (["templating", "list", 1, "query"], None), (["templating", "list", 0, "type"], "source"),
                         (["annotations", "list", 0, "expr"], "")):
        wrong = copy.deepcopy(dashboard)
        *path, last = place
        at = wrong
        for step in path:
            at = at[step]
        if value is None:
            del at[last]
        else:
            at[last] = value
        expect(errors_of(wrong), "%s may be %r" % (place, value))


def NoTwoPanelsLieOnOneAnother(dashboard):
    panels = dashboard["panels"]
    expect(len({panel["id"] for panel in panels}) == len(panels), "two panels have one number")
    for panel in panels:
        expect(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, "%s is beyond the edge" % panel["title"])
        refs = [target["refId"] for target in panel["targets"]]
        expect(len(set(refs)) == len(refs), "%s: %s" % (panel["title"], refs))
    for (a, one), (b, other) in itertools.combinations(((p["title"], p["gridPos"]) for p in panels), 2):
        apart = any(one[at] + one[size] <= other[at] or other[at] + other[size] <= one[at] for at, size in ("xw", "yh"))
        expect(apart, "%s and %s" % (a, b))


def EachVariableIsThere(dashboard):
    """Those that a query names, and those that name one another only backwards."""
    known = set()
    for variable in dashboard["templating"]["list"]:
        expect(variable["name"] not in known, "%s is there twice" % variable["name"])
        expect(used_in(variable) <= known, "%s uses %s" % (variable["name"], used_in(variable) - known))
        known.add(variable["name"])
    for part in dashboard["panels"], dashboard["annotations"]:
        expect(used_in(part) <= known | BUILT_IN, used_in(part) - known - BUILT_IN)
    expect(used_in(dashboard["panels"]) >= known, "%s is of no use" % (known - used_in(dashboard["panels"])))


def used_in(part):
    return set(re.findall(r"\$\{?(\w+)", re.sub(r'"\$__all"|\$"', "", json.dumps(part))))


BY_SCHEMA = [ItHasTheFormThatGrafanaReads, WhatGrafanaWouldNotReadIsFound]
BY_HAND = [NoTwoPanelsLieOnOneAnother, EachVariableIsThere]


def main():
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    if jsonschema is None:
        cases.skip("Dashboard", BY_SCHEMA, "python3-jsonschema is not installed")
    tests = BY_HAND if jsonschema is None else BY_SCHEMA + BY_HAND
    return cases.run("Dashboard", tests, lambda test, _began: test(dashboard), lambda: ())


if __name__ == "__main__":
    sys.exit(main())
