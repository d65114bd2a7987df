"""Rendering the chart, and what was rendered."""

import json
import subprocess
import tempfile

import yaml

CHART = "helm/lanekeeper"
RELEASE, NAMESPACE = "lanekeeper", "lanekeeper"


def load(text):
    # libyaml where it is there: many times as fast.
    return yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class Refused(Exception):
    """The chart does not render with these values."""


class Rendered:
    """The objects of one rendering, by kind and name."""

    def __init__(self, documents):
        self.objects = [document for document in documents if document]

    def all(self, kind):
        return [one for one in self.objects if one["kind"] == kind]

    def one(self, kind, suffix=""):
        found = [one for one in self.all(kind) if one["metadata"]["name"] == RELEASE + suffix]
        assert len(found) == 1, f"{kind} {RELEASE}{suffix}: {len(found)} of it"
        return found[0]

    def worker(self):
        return self.one("Deployment")["spec"]["template"]["spec"]

    def pods(self):
        for one in self.all("Deployment") + self.all("Job"):
            yield one, one["spec"]["template"]["spec"]
        for one in self.all("Pod"):
            yield one, one["spec"]


def text(helm, values, kubernetes="1.33", extra=()):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        command = [helm, "template", RELEASE, CHART, "--namespace", NAMESPACE]
        command += ["--kube-version", f"{kubernetes}.0", "--values", file.name, *extra]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if ran.returncode != 0:
        raise Refused(ran.stderr.strip())
    return ran.stdout


def render(helm, values, kubernetes="1.33", extra=()):
    return Rendered(load(text(helm, values, kubernetes, extra)))


def env(container):
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container.get("env") or []}
