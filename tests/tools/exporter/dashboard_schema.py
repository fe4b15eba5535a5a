# SPDX-License-Identifier: Apache-2.0
"""SCHEMA: what Grafana asks of a dashboard (schema version 36 and later), as JSON Schema (draft 7), as far as ours uses it.

It was made from what Grafana publishes of its kinds and of its panels' options (kinds/dashboard and grafana-schema in its
repository), for queries of Prometheus alone. It refuses fields that it does not know, so that a misspelt one is found.
"""

TEXT, NAME, BOOL, NUMBER = {"type": "string"}, {"type": "string", "minLength": 1}, {"type": "boolean"}, {"type": "number"}
ANY = {}


def whole(least, most=None):
    return {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})


def one_of(*values):
    return {"enum": list(values)}


def matching(pattern):
    return {"type": "string", "pattern": pattern}


def list_of(schema, least=0):
    return {"type": "array", "items": schema, "minItems": least}


def fields(required=None, **optional):
    """An object with these fields, and no others."""
    return {"type": "object", "properties": (required or {}) | optional, "required": list(required or {}),
            "additionalProperties": False}


DATASOURCE = fields({"type": TEXT, "uid": TEXT})
QUERY = fields({"refId": matching("^[A-Z]$"), "datasource": DATASOURCE, "expr": NAME}, legendFormat=TEXT, instant=BOOL,
               range=BOOL, hide=BOOL, interval=TEXT, format=one_of("time_series", "table", "heatmap"))

# How values look.
SHOWN = fields(text=TEXT, color=TEXT, icon=TEXT, index=whole(0))
MAPPING = {"oneOf": [
    fields({"type": one_of("value"), "options": {"type": "object", "additionalProperties": SHOWN}}),
    fields({"type": one_of("range"), "options": fields({"from": NUMBER, "to": NUMBER, "result": SHOWN})}),
    fields({"type": one_of("regex"), "options": fields({"pattern": TEXT, "result": SHOWN})}),
    fields({"type": one_of("special"), "options": fields({
        "match": one_of("true", "false", "null", "nan", "null+nan", "empty"), "result": SHOWN})})]}
STEP = fields({"color": TEXT}, value={"type": ["number", "null"]})
LINE_STYLE = fields(fill=one_of("solid", "dash", "dot", "square"), dash=list_of(NUMBER))
DRAWN = fields(drawStyle=one_of("line", "bars", "points"), stacking=fields(mode=one_of("none", "normal", "percent"), group=TEXT),
               fillOpacity=whole(0, 100), lineWidth=whole(0, 10), lineStyle=LINE_STYLE,
               lineInterpolation=one_of("linear", "smooth", "stepBefore", "stepAfter"),
               showPoints=one_of("auto", "never", "always"), spanNulls={"type": ["boolean", "number"]}, axisLabel=TEXT)
PROPERTY = {"anyOf": [fields({"id": one_of("custom.lineStyle"), "value": LINE_STYLE}),
                      fields({"id": NAME | {"not": one_of("custom.lineStyle")}, "value": ANY})]}
OVERRIDE = fields({"matcher": fields({"id": one_of("byName", "byRegexp", "byType", "byFrameRefID"), "options": ANY}),
                   "properties": list_of(PROPERTY, 1)})
FIELD_CONFIG = fields({
    "defaults": fields(unit=TEXT, min=NUMBER, max=NUMBER, decimals=NUMBER, noValue=TEXT, displayName=TEXT,
                       mappings=list_of(MAPPING), custom=DRAWN, color=fields({"mode": TEXT}, fixedColor=TEXT),
                       thresholds=fields({"mode": one_of("absolute", "percentage"), "steps": list_of(STEP, 1)})),
    "overrides": list_of(OVERRIDE)})

# The options of each kind of panel.
SINGLE = {"orientation": one_of("auto", "vertical", "horizontal"), "text": {"type": "object"},
          "reduceOptions": fields({"calcs": list_of(TEXT)}, values=BOOL, limit=NUMBER, fields=TEXT)}
OPTIONS = {
    "stat": fields(colorMode=one_of("value", "background", "background_solid", "none"), graphMode=one_of("none", "line", "area"),
                   justifyMode=one_of("auto", "center"), textMode=one_of("auto", "value", "value_and_name", "name", "none"),
                   **SINGLE),
    "bargauge": fields(displayMode=one_of("basic", "lcd", "gradient"), valueMode=one_of("color", "text", "hidden"),
                       showUnfilled=BOOL, **SINGLE),
    "timeseries": fields({
        "legend": fields({"displayMode": one_of("list", "table", "hidden"), "placement": one_of("bottom", "right"),
                          "showLegend": BOOL, "calcs": list_of(TEXT)}, sortBy=TEXT, sortDesc=BOOL, width=NUMBER),
        "tooltip": fields({"mode": one_of("single", "multi", "none"), "sort": one_of("asc", "desc", "none")})}),
    "table": fields(frameIndex=NUMBER, showHeader=BOOL, cellHeight=one_of("sm", "md", "lg"),
                    sortBy=list_of(fields(displayName=TEXT, desc=BOOL))),
}
PANEL = fields({"id": whole(1), "type": one_of(*OPTIONS), "title": NAME, "datasource": DATASOURCE,
                "gridPos": fields({"x": whole(0, 23), "y": whole(0), "w": whole(1, 24), "h": whole(1)}),
                "targets": list_of(QUERY, 1), "fieldConfig": FIELD_CONFIG, "options": ANY},
               description=TEXT, transparent=BOOL, interval=TEXT, maxDataPoints=NUMBER, pluginVersion=TEXT, repeat=TEXT,
               repeatDirection=one_of("h", "v"), transformations=list_of(fields({"id": NAME, "options": ANY}, disabled=BOOL)))
PANEL["allOf"] = [{"if": {"properties": {"type": one_of(kind)}}, "then": {"properties": {"options": options}}}
                  for kind, options in OPTIONS.items()]

OF_VARIABLES = {"label": TEXT, "description": TEXT, "hide": one_of(0, 1, 2), "skipUrlSync": BOOL, "includeAll": BOOL,
                "multi": BOOL, "allValue": TEXT, "regex": TEXT, "current": fields(text=ANY, value=ANY, selected=BOOL)}
VARIABLE_NAME = matching("^[A-Za-z_][A-Za-z0-9_]*$")
VARIABLE = {"oneOf": [
    fields({"name": VARIABLE_NAME, "type": one_of("datasource"), "query": NAME}, **OF_VARIABLES),
    fields({"name": VARIABLE_NAME, "type": one_of("query"), "datasource": DATASOURCE, "refresh": one_of(0, 1, 2),
            "query": fields({"query": NAME, "refId": NAME})}, definition=TEXT, sort=whole(0, 8), **OF_VARIABLES)]}
ANNOTATION = fields({"name": NAME, "datasource": DATASOURCE, "enable": BOOL, "iconColor": TEXT, "expr": NAME},
                    hide=BOOL, titleFormat=TEXT, textFormat=TEXT, tagKeys=TEXT, step=TEXT)

TIME = matching("^now(-[0-9]+[smhdwMy])?(/[smhdwMy])?$")
SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#"} | fields(
    {"title": NAME, "uid": matching("^[A-Za-z0-9_-]{1,40}$"), "schemaVersion": whole(36, 41), "panels": list_of(PANEL, 1),
     "templating": fields({"list": list_of(VARIABLE)}), "annotations": fields({"list": list_of(ANNOTATION)}),
     "time": fields({"from": TIME, "to": TIME})},
    id={"type": ["integer", "null"]}, description=TEXT, tags=list_of(TEXT), timezone=TEXT, editable=BOOL,
    graphTooltip=one_of(0, 1, 2), version=whole(0), links=list_of({"type": "object"}),
    refresh={"anyOf": [matching("^([0-9]+(ms|[smhd]))?$"), one_of(False)]})
