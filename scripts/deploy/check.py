"""Checks the chart: what it renders is valid for several Kubernetes versions and restricted, each switch does
what it says, and the manifests under deploy/ are what it renders. Run by scripts/check-deploy.sh.

    check.py HELM [--write]      --write renders the manifests anew
"""

import functools
import json
import pathlib
import subprocess
import sys

import yaml

import pod_security
from cases import CASES, REFUSED, EVERYTHING
from chart import CHART, NAMESPACE, RELEASE, Refused, env, load, render, text

VERSIONS = ("1.27", "1.30", "1.33", "1.37")
# Of operators, unknown to Kubernetes' own schemas: what their specs must have.
CUSTOM = {
    "ServiceMonitor": {"selector", "endpoints", "jobLabel"},
    "PrometheusRule": {"groups"},
    "TriggerAuthentication": {"secretTargetRef"},
    "ScaledObject": {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod", "fallback", "triggers"},
}
MANIFESTS = pathlib.Path("deploy/kubernetes")
HEAD = """# What helm/lanekeeper renders with values.yaml beside this: for clusters without Helm. Not edited by hand;
# `scripts/check-deploy.sh --write` renders it anew. deploy/README.md says how to apply it.
"""
failures = []


def check(name, run):
    try:
        run()
    except Exception as error:  # a check that cannot run has failed too
        failures.append(f"{name}: {type(error).__name__} {error}".rstrip())


def validators():
    import kubernetes_validate.utils as utils

    # It reads its schemas for each object, megabytes of them.
    utils.schema_contents = functools.lru_cache(maxsize=None)(utils.schema_contents)
    return lambda one, version: utils.validate(one, version, strict=True)


def is_valid(one, version, validate, seen):
    known = (json.dumps(one, sort_keys=True), version)
    if known in seen:
        return
    seen.add(known)
    if one["kind"] in CUSTOM:
        assert set(one["spec"]) == CUSTOM[one["kind"]], f"{one['kind']} has {sorted(one['spec'])}"
    else:
        validate(one, version)


def every_case(helm, validate):
    seen = set()
    for name, values in CASES.items():
        for version in VERSIONS:

            def one_case():
                rendered = render(helm, values, version)
                for one in rendered.objects:
                    is_valid(one, version, validate, seen)
                    assert one["metadata"].get("namespace", NAMESPACE) == NAMESPACE
                for owner, pod in rendered.pods():
                    found = pod_security.violations(pod)
                    assert not found, f"{owner['kind']} {owner['metadata']['name']} is not restricted: {found}"
                    assert pod["automountServiceAccountToken"] is False
                    for container in pod_security.containers(pod):
                        assert container["securityContext"]["readOnlyRootFilesystem"] is True
                        names = [one["name"] for one in container.get("env") or []]
                        assert len(names) == len(set(names)), f"twice in {container['name']}: {names}"

            check(f"{name}, Kubernetes {version}", one_case)
    return len(seen)


def the_checks_can_fail(helm, validate):
    pod = render(helm, CASES["defaults"]).worker()
    for number, broken in enumerate(pod_security.breaks(pod)):
        assert pod_security.violations(broken), f"violation {number} is not found"
    deployment = render(helm, CASES["defaults"]).one("Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    try:
        validate(deployment, VERSIONS[-1])
    except Exception:
        return
    raise AssertionError("a misspelt field is valid")


def refusals(helm):
    for name, (values, part) in REFUSED.items():
        try:
            render(helm, values)
        except Refused as refused:
            if part not in str(refused):
                failures.append(f"{name}: refused with other words: {refused}")
        else:
            failures.append(f"{name}: is not refused")


def rolling_updates_lose_no_worker(helm):
    deployment = render(helm, CASES["defaults"]).one("Deployment")["spec"]
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    for grace_ms, sleep, expected in ((25000, 5, 40), (90001, 5, 106), (0, 0, 10)):
        values = CASES["defaults"] | {"config": {"worker": {"shutdown_grace_ms": grace_ms}}, "preStopSleepSeconds": sleep}
        pod = render(helm, values).worker()
        assert pod["terminationGracePeriodSeconds"] == expected, (grace_ms, pod["terminationGracePeriodSeconds"])
        assert ("lifecycle" in pod["containers"][0]) == (sleep > 0)
    old = render(helm, CASES["defaults"], "1.29").worker()
    assert "lifecycle" not in old["containers"][0], "preStop.sleep is not there before 1.30"


def probes_ask_what_they_are_for(helm):
    worker = render(helm, CASES["defaults"]).worker()["containers"][0]
    for probe, path in (("startupProbe", "/startupz"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert worker[probe]["httpGet"] == {"path": path, "port": "http"}, probe


def settings_arrive(helm):
    rendered = render(helm, EVERYTHING)
    data = rendered.one("ConfigMap")["data"]
    assert data["LANEKEEPER_WORKER__MAX_LANES"] == "1000000", data
    assert data["LANEKEEPER_WORKER__REGISTRY"] == "false", data
    assert data["OTEL_TRACES_SAMPLER_ARG"] == "0.1", data
    assert all(isinstance(value, str) for value in data.values())
    for _, pod in rendered.pods():
        for container in pod_security.containers(pod):
            # No secret is a variable of a process: commands of the exec adapter, and core dumps, have none.
            assert env(container)["DATABASE_URL_FILE"] == "/etc/lanekeeper/database/url"
            assert "DATABASE_URL" not in env(container)
    worker = rendered.worker()["containers"][0]
    assert "AUDIT_SECRET" in env(worker)
    one, other = (render(helm, CASES["defaults"] | {"config": {"worker": {"batch": n}}}) for n in (1, 2))
    sums = [r.one("Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for r in (one, other)]
    assert sums[0] != sums[1], "changed settings make no new pods"


def migrations_come_first(helm):
    job = render(helm, EVERYTHING).one("Job", "-migrate")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    pod = job["spec"]["template"]["spec"]
    secrets = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    assert secrets == ["owner", "ca"], secrets
    # Before the first install there is nothing of the release.
    assert "serviceAccountName" not in pod and "envFrom" not in pod["containers"][0]
    assert not any("configMap" in volume for volume in pod["volumes"])
    assert env(pod["containers"][0])["LANEKEEPER_DATABASE__SSLROOTCERT"] == "/etc/lanekeeper/database-ca/ca.crt"
    rendered = render(helm, CASES["everything with init containers"])
    assert [one["metadata"]["name"] for one in rendered.all("Job")] == [f"{RELEASE}-apply"]
    init = rendered.worker()["initContainers"][0]
    assert init["args"] == ["migrate"]
    assert {one["mountPath"]: one["name"] for one in init["volumeMounts"]}["/etc/lanekeeper/database"] == "migration-database"
    assert "initContainers" not in render(helm, CASES["everything without migrations"]).worker()


def subscriptions_are_applied(helm):
    rendered = render(helm, EVERYTHING)
    job = rendered.one("Job", "-apply")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == [
        "apply", "-f", "/etc/lanekeeper/subscriptions/subscriptions.toml", "--prune",
    ]
    assert rendered.one("ConfigMap", "-subscriptions")["data"]["subscriptions.toml"] == EVERYTHING["subscriptions"]["file"]
    assert not [one for one in render(helm, CASES["defaults"]).all("Job") if one["metadata"]["name"].endswith("apply")]
    pod = render(helm, CASES["subscriptions of a ConfigMap"]).one("Job", "-apply")["spec"]["template"]["spec"]
    assert {"name": "mine"} in [volume.get("configMap") for volume in pod["volumes"]]


def scalers_own_the_replicas(helm):
    assert render(helm, CASES["defaults"]).one("Deployment")["spec"]["replicas"] == 2
    for case, kind in (("by CPU", "HorizontalPodAutoscaler"), ("by lag", "ScaledObject")):
        rendered = render(helm, CASES[case])
        assert "replicas" not in rendered.one("Deployment")["spec"], case
        assert rendered.one(kind)["spec"]["scaleTargetRef"]["name"] == RELEASE
    reference = render(helm, CASES["by lag, a role of its own"]).one("TriggerAuthentication", "-postgres")
    assert reference["spec"]["secretTargetRef"] == [{"parameter": "connection", "name": "reader", "key": "url"}]


def the_network_is_closed_but_for_what_is_named(helm):
    closed = render(helm, CASES["closed network"]).one("NetworkPolicy")["spec"]
    assert closed["ingress"] == [] and set(closed["policyTypes"]) == {"Ingress", "Egress"}
    ports = lambda policy: {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert ports(closed) == {53, 5432}, ports(closed)
    assert ports(render(helm, EVERYTHING).one("NetworkPolicy")["spec"]) == {53, 5432, 6379, 4317, 443, 25}


def selectors_find_the_pods(helm):
    rendered = render(helm, EVERYTHING)
    labels = rendered.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        rendered.one("Deployment")["spec"]["selector"]["matchLabels"],
        rendered.one("Service")["spec"]["selector"],
        rendered.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        rendered.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items(), selector
    monitored = rendered.one("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert monitored.items() <= rendered.one("Service")["metadata"]["labels"].items()
    for job in rendered.all("Job"):
        own = job["spec"]["template"]["metadata"]["labels"]
        service = rendered.one("Service")["spec"]["selector"]
        assert not service.items() <= own.items(), "requests go to a Job"


def monitoring_is_what_deploy_has(helm):
    values = EVERYTHING | {"metrics": EVERYTHING["metrics"] | {"prometheusRule": {"enabled": True, "runbookUrl": "https://wiki.example/r"}}}
    groups = render(helm, values).one("PrometheusRule")["spec"]["groups"]
    plain = yaml.safe_load(open(f"{CHART}/files/alerts.yaml"))["groups"]
    urls = [rule["annotations"].pop("runbook_url") for group in groups for rule in group["rules"]]
    assert all(url.startswith("https://wiki.example/r#") for url in urls), urls
    for group in plain:
        for rule in group["rules"]:
            rule["annotations"].pop("runbook_url")
    assert groups == plain
    boards = [one for one in render(helm, EVERYTHING).all("ConfigMap") if "-dashboard-" in one["metadata"]["name"]]
    assert len(boards) == len(list(pathlib.Path(CHART, "files/dashboards").glob("*.json"))) > 0


def helm_4_renders_the_same(helm):
    from helm_python.chart import Chart

    with Chart.load(CHART) as loaded:
        for name, values in CASES.items():
            files = loaded.render(values=values, name=RELEASE, namespace=NAMESPACE)
            notes = files.pop("lanekeeper/templates/NOTES.txt")
            assert "lanekeeper doctor --replicas" in notes, name
            objects = [one for file in files.values() for one in load(file) if one]
            key = lambda one: (one["kind"], one["metadata"]["name"])
            assert sorted(objects, key=key) == sorted(render(helm, values).objects, key=key), name


def manifests(helm, write):
    values = yaml.safe_load(open(MANIFESTS / "values.yaml"))
    lines = text(helm, values, "1.30", ("--no-hooks",)).splitlines()
    wanted = HEAD + "\n".join(line for line in lines if line.strip()) + "\n"
    path = MANIFESTS / "lanekeeper.yaml"
    if write:
        path.write_text(wanted)
    assert path.read_text() == wanted, f"{path} is not what the chart renders: scripts/check-deploy.sh --write"


def main():
    helm, write = sys.argv[1], "--write" in sys.argv[2:]
    check("manifests", lambda: manifests(helm, write))
    lint = [helm, "lint", "--strict", CHART, "--set", "database.existingSecret=x"]
    check("helm lint", lambda: subprocess.run(lint, check=True, capture_output=True, timeout=30))
    check("refusals", lambda: refusals(helm))
    for one in (
        rolling_updates_lose_no_worker, probes_ask_what_they_are_for, settings_arrive, migrations_come_first,
        subscriptions_are_applied, scalers_own_the_replicas, the_network_is_closed_but_for_what_is_named,
        selectors_find_the_pods, monitoring_is_what_deploy_has,
    ):
        check(one.__name__, lambda: one(helm))
    try:
        validate = validators()
    except ImportError:
        print("check-deploy: kubernetes-validate is not there: manifests are not compared with Kubernetes' schemas")
    else:
        check("the checks can fail", lambda: the_checks_can_fail(helm, validate))
        seen = every_case(helm, validate)
        print(f"check-deploy: {len(CASES)} sets of values, {seen} objects valid and restricted on Kubernetes {', '.join(VERSIONS)}")
    try:
        import helm_python  # noqa: F401
    except ImportError:
        print("check-deploy: helm-python-sdk is not there: the chart is not rendered by Helm 4")
    else:
        check("Helm 4", lambda: helm_4_renders_the_same(helm))
    for failure in failures:
        print(f"check-deploy: FAILED {failure}", file=sys.stderr)
    sys.exit(bool(failures))


main()
