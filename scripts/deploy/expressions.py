"""The expressions of the dashboards as recording rules, for promtool to read: Grafana's variables in place."""

import json
import pathlib
import sys

import yaml


def expressions(value):
    if isinstance(value, dict):
        if isinstance(value.get("expr"), str):
            yield value["expr"]
        for below in value.values():
            yield from expressions(below)
    elif isinstance(value, list):
        for below in value:
            yield from expressions(below)


def main():
    rules = []
    for path in sorted(pathlib.Path("helm/lanekeeper/files/dashboards").glob("*.json")):
        for expression in expressions(json.loads(path.read_text())):
            expression = expression.replace("$__rate_interval", "5m")
            for variable in ("$namespace", "$job", "$stream", "$subscription"):
                expression = expression.replace(variable, ".*")
            rules.append({"record": f"dashboard:{path.stem}:{len(rules)}", "expr": expression})
    yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}, sys.stdout)


main()
