"""Checks the chart: what it renders is valid for several Kubernetes versions and restricted, each switch does
what it says, and the manifests under deploy/ are what it renders. Run by scripts/check-deploy.sh.

    check.py HELM [--write]      --write renders the manifests anew
"""

import copy
import functools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import yaml

import pod_security
from cases import CASES, REFUSED, EVERYTHING
from chart import CHART, NAMESPACE, RELEASE, Refused, env, load, render, text

VERSIONS = ("1.27", "1.30", "1.33", "1.37")
# Of operators, unknown to Kubernetes' own schemas: what their specs must have.
CUSTOM = {
    "ServiceMonitor": {"selector", "endpoints"},
    "HTTPRoute": {"parentRefs", "hostnames", "rules"},
    "PrometheusRule": {"groups"},
    "TriggerAuthentication": {"secretTargetRef"},
    "ScaledObject": {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod", "fallback", "triggers"},
}
WITHIN_A_DAY = "absent_over_time(lanekeeper_workers[1d])"
MANIFESTS = pathlib.Path("deploy/kubernetes")
HEAD = """# What helm/lanekeeper renders with values.yaml beside this: for clusters without Helm. Not edited by hand;
# `scripts/check-deploy.sh --write` renders it anew. deploy/README.md says how to apply it.
"""
failures = []


def check(name, run):
    try:
        run()
    except Exception as error:  # a check that cannot run has failed too
        # Kubernetes' schemas are repeated whole in messages of what does not match them.
        failures.append(f"{name}: {type(error).__name__} {error}".rstrip()[:2000])


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
                    assert pod["securityContext"]["runAsNonRoot"] is True
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
            ours = container["name"] in ("worker", "migrate", "apply")
            assert env(container).get("DATABASE_URL_FILE") == ("/etc/lanekeeper/database/url" if ours else None)
            assert "DATABASE_URL" not in env(container)
    worker = rendered.worker()["containers"][0]
    assert "AUDIT_SECRET" in env(worker)
    assert data["OTEL_METRICS_EXPORTER"] == "none", data
    pushed = render(helm, CASES["metrics over OTLP"]).one("ConfigMap")["data"]
    assert pushed["OTEL_METRICS_EXPORTER"] == "otlp", pushed
    deployment = rendered.one("Deployment")["spec"]
    assert deployment["minReadySeconds"] == 10
    assert "minReadySeconds" not in render(helm, CASES["defaults"]).one("Deployment")["spec"]
    for owner, pod in rendered.pods():
        assert pod["dnsPolicy"] == "None" and pod["dnsConfig"] == EVERYTHING["dnsConfig"], owner["metadata"]["name"]
    one, other = (render(helm, CASES["defaults"] | {"config": {"worker": {"batch": n}}}) for n in (1, 2))
    sums = [r.one("Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for r in (one, other)]
    assert sums[0] != sums[1], "changed settings make no new pods"


def migrations_come_first(helm):
    job = render(helm, EVERYTHING).one("Job", "-migrate")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    pod = job["spec"]["template"]["spec"]
    secrets = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    assert secrets == ["owner", "ca", "tls"], secrets
    # Before the first install there is nothing of the release: only what the user names.
    assert "serviceAccountName" not in pod and pod["containers"][0]["envFrom"] == EVERYTHING["jobs"]["extraEnvFrom"]
    assert not any("configMap" in volume for volume in pod["volumes"])
    assert env(pod["containers"][0])["LANEKEEPER_DATABASE__SSLROOTCERT"] == "/etc/lanekeeper/database-ca/ca.crt"
    rendered = render(helm, CASES["everything with init containers"])
    assert [one["metadata"]["name"] for one in rendered.all("Job")] == [f"{RELEASE}-apply"]
    init = rendered.worker()["initContainers"][-1]
    assert init["args"] == ["migrate"]
    assert {one["mountPath"]: one["name"] for one in init["volumeMounts"]}["/etc/lanekeeper/database"] == "migration-database"
    bare = CASES["everything without migrations"] | {"initContainers": []}
    assert "initContainers" not in render(helm, bare).worker()


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


def jobs_take_what_they_need(helm):
    rendered = render(helm, EVERYTHING)
    for name in ("-migrate", "-apply"):
        job = rendered.one("Job", name)
        annotations = job["metadata"]["annotations"]
        assert annotations["note"] == "job" and annotations["owner"] == "platform", annotations
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation", annotations
        assert "helm.sh/hook" in annotations and "argocd.argoproj.io/hook" in annotations
        template = job["spec"]["template"]
        assert template["metadata"]["labels"]["tier"] == "jobs"
        assert template["metadata"]["annotations"] == EVERYTHING["jobs"]["podAnnotations"]
        pod = template["spec"]
        assert [one["name"] for one in pod["initContainers"]] == ["proxy"]
        container = pod["containers"][0]
        assert env(container)["SSL_CERT_FILE"] == "/tls/ca.crt" and "AUDIT_SECRET" not in env(container)
        assert container["envFrom"] == EVERYTHING["jobs"]["extraEnvFrom"]
        mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        assert mounts["/tls"] == "tls", mounts
        assert {"tmp", "tls"} <= {one["name"] for one in pod["volumes"]}
    assert "SSL_CERT_FILE" not in env(rendered.worker()["containers"][0])
    # A pod that migrates in an init container has the volumes of both, each once.
    pod = render(helm, CASES["everything with init containers"]).worker()
    names = [one["name"] for one in pod["volumes"]]
    assert len(names) == len(set(names)) and {"tmp", "tls"} <= set(names), names
    assert [one["name"] for one in pod["initContainers"]] == ["proxy", "migrate"]
    assert env(pod["initContainers"][1])["SSL_CERT_FILE"] == "/tls/ca.crt"


def containers_of_the_user_are_as_closed_as_the_worker(helm):
    pod = render(helm, EVERYTHING).worker()
    worker, sidecar = pod["containers"]
    assert worker["name"] == "worker" and sidecar["image"] == "sidecar:1"
    assert sidecar["securityContext"] == worker["securityContext"] | {"runAsUser": 1000}
    stays = {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}
    proxied = render(helm, CASES["defaults"] | {"initContainers": [stays], "jobs": {"initContainers": [stays]}})
    for pod in (proxied.worker(), proxied.one("Job", "-migrate")["spec"]["template"]["spec"]):
        assert pod["initContainers"][0]["restartPolicy"] == "Always"
    # What is said goes before the default.
    open_one = {"name": "open", "image": "open:1", "securityContext": {"readOnlyRootFilesystem": False}}
    opened = render(helm, CASES["defaults"] | {"extraContainers": [open_one]}).worker()["containers"][1]
    assert opened["securityContext"]["readOnlyRootFilesystem"] is False
    assert opened["securityContext"]["allowPrivilegeEscalation"] is False


def resource_attributes_are_one_variable(helm):
    def last(case):
        entries = render(helm, CASES[case]).worker()["containers"][0]["env"]
        return [one["name"] for one in entries], env({"env": entries})

    names, values = last("everything with hooks")
    assert values["OTEL_RESOURCE_ATTRIBUTES"] == (
        "deployment.environment=prod,k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME),"
        "service.instance.id=$(POD_NAMESPACE)/$(POD_NAME),$(EXTRA_RESOURCE_ATTRIBUTES)"
    ), values
    assert values["EXTRA_RESOURCE_ATTRIBUTES"] == "team=$(TEAM)"
    # A variable is put in place only where the one that it names came before.
    order = [names.index(one) for one in ("TEAM", "EXTRA_RESOURCE_ATTRIBUTES", "OTEL_RESOURCE_ATTRIBUTES")]
    assert order == sorted(order), names
    assert values["POD_NAMESPACE"] == "elsewhere" and names.count("POD_NAMESPACE") == 1, names
    assert last("resource attributes of the user alone")[1]["OTEL_RESOURCE_ATTRIBUTES"] == "a=b"
    _, values = last("resource attributes of a secret")
    assert values["EXTRA_RESOURCE_ATTRIBUTES"] == {"configMapKeyRef": {"name": "otel", "key": "attributes"}}
    assert values["OTEL_RESOURCE_ATTRIBUTES"].endswith(",$(EXTRA_RESOURCE_ATTRIBUTES)")
    assert "OTEL_RESOURCE_ATTRIBUTES" not in last("defaults")[1]


def password_of(pod, container):
    """Secret and key of the file that a container reads the database's password from."""
    folder, name = env(container)["LANEKEEPER_DATABASE__PASSWORD_FILE"].rsplit("/", 1)
    mounts = [one["name"] for one in container["volumeMounts"] if one["mountPath"] == folder]
    volumes = [one["secret"] for one in pod["volumes"] if one["name"] in mounts]
    assert len(volumes) == 1, pod
    keys = [item["key"] for item in volumes[0]["items"] if item["path"] == name]
    return (volumes[0]["secretName"], *keys)


def a_database_is_given_by_parts(helm):
    # tests/it/deploy/chart.rs reads this very string.
    string = r"host='db-0,db-1' port=5432 dbname='app\'s' user='me\\you' sslmode=verify-full"
    rendered = render(helm, CASES["a database by parts"])
    for owner, pod in rendered.pods():
        if owner["kind"] == "Pod":
            continue
        own = pod["containers"][0]
        assert env(own)["DATABASE_URL"] == string, env(own)
        assert "DATABASE_URL_FILE" not in env(own) and "PGPASSWORD" not in env(own)
        assert password_of(pod, own) == ("db", "pw"), pod
    job = render(helm, CASES["a database by parts, a role for migrations"]).one("Job", "-migrate")
    rendered = render(helm, CASES["a database by parts, roles and init containers"])
    apply = rendered.one("Job", "-apply")["spec"]["template"]["spec"]
    for pod, at in ((job["spec"]["template"]["spec"], "containers"), (rendered.worker(), "initContainers"), (apply, "initContainers")):
        migrate = env(pod[at][0])
        assert "user='owner'" in migrate["DATABASE_URL"], migrate
        assert password_of(pod, pod[at][0]) == ("db-owner", "password"), pod
    for pod in (rendered.worker(), apply):
        assert "user='owner'" not in env(pod["containers"][0])["DATABASE_URL"]
        assert password_of(pod, pod["containers"][0]) == ("db", "pw"), pod
    pod = render(helm, CASES["a database by parts, migrations by URL"]).worker()
    migrate = pod["initContainers"][0]
    assert env(migrate)["DATABASE_URL_FILE"] and "DATABASE_URL" not in env(migrate)
    assert [one["name"] for one in migrate["volumeMounts"]] == ["migration-database"]
    assert password_of(pod, pod["containers"][0]) == ("db", "pw"), pod
    worker = render(helm, CASES["by lag, without a password"]).worker()
    assert "database" not in [one["name"] for one in worker.get("volumes") or []], worker
    plain = env(worker["containers"][0])
    assert plain == {"DATABASE_URL": "host='db' port=5432 dbname='app' user='me'"}, plain
    dollars = {"database": {"host": "db", "name": "$(HOME)", "user": "$$"}}
    dollars = env(render(helm, dollars).worker()["containers"][0])["DATABASE_URL"]
    assert dollars == "host='db' port=5432 dbname='$$(HOME)' user='$$$$'", dollars


def the_api_is_reached_from_outside_and_nothing_else(helm):
    rendered = render(helm, EVERYTHING)
    ingress = rendered.one("Ingress")
    assert ingress["spec"]["ingressClassName"] == "nginx" and ingress["spec"]["tls"] == EVERYTHING["ingress"]["tls"]
    assert [rule["host"] for rule in ingress["spec"]["rules"]] == EVERYTHING["ingress"]["hosts"]
    for rule in ingress["spec"]["rules"]:
        backend = {"service": {"name": RELEASE, "port": {"name": "http"}}}
        assert rule["http"]["paths"] == [{"path": "/v1", "pathType": "Prefix", "backend": backend}], rule
    assert ingress["metadata"]["annotations"] == {"cert-manager.io/cluster-issuer": "public", "owner": "platform"}
    route = rendered.one("HTTPRoute")
    assert route["spec"]["parentRefs"] == EVERYTHING["httpRoute"]["parentRefs"]
    assert route["spec"]["hostnames"] == ["events.example.com"]
    assert route["spec"]["rules"] == [{
        "matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}],
        "filters": EVERYTHING["httpRoute"]["filters"],
        "timeouts": {"request": "30s"},
        "backendRefs": [{"name": RELEASE, "port": 80}],
    }], route["spec"]["rules"]
    default = render(helm, CASES["defaults"])
    assert not default.all("Ingress") and not default.all("HTTPRoute")
    own = render(helm, CASES["an ingress of its own"]).one("Ingress")["spec"]["rules"][0]["http"]["paths"][0]
    assert (own["path"], own["pathType"]) == ("/v1/streams", "ImplementationSpecific")


def the_service_is_what_is_asked_for(helm):
    service = render(helm, EVERYTHING).one("Service")
    spec, asked = service["spec"], EVERYTHING["service"]
    for field in ("type", "ipFamilyPolicy", "ipFamilies", "externalTrafficPolicy", "loadBalancerClass", "loadBalancerSourceRanges"):
        assert spec[field] == asked[field], field
    http = {"name": "http", "port": 80, "targetPort": "http", "nodePort": 30080}
    assert spec["ports"] == [http, *asked["extraPorts"]], spec["ports"]
    assert service["metadata"]["labels"]["tier"] == "edge" and service["metadata"]["annotations"]["lb"] == "internal"
    assert render(helm, CASES["headless"]).one("Service")["spec"]["clusterIP"] == "None"
    default = render(helm, CASES["defaults"]).one("Service")["spec"]
    assert set(default) == {"type", "selector", "ports"} and "nodePort" not in default["ports"][0], default


def helm_test_asks_for_readiness(helm):
    for case, port in (("defaults", 8080), ("everything with hooks", 80)):
        rendered = render(helm, CASES[case])
        pod = rendered.one("Pod", "-test")
        assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
        container = pod["spec"]["containers"][0]
        assert container["args"] == ["health", "--url", f"http://{RELEASE}.{NAMESPACE}.svc:{port}/readyz"], container["args"]
        assert container["image"] == rendered.worker()["containers"][0]["image"]
        # It needs no secret, and no request goes to it.
        assert not env(container) and "volumes" not in pod["spec"] and pod["spec"]["restartPolicy"] == "Never"
        assert not rendered.one("Service")["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert render(helm, EVERYTHING).one("Pod", "-test")["metadata"]["annotations"]["note"] == "test"
    for values in ({"tests": {"enabled": False}}, {"service": {"enabled": False}}):
        assert not render(helm, CASES["defaults"] | values).all("Pod")
    policy = render(helm, CASES["closed network with a test"]).one("NetworkPolicy")["spec"]
    tester = render(helm, CASES["defaults"]).one("Pod", "-test")["metadata"]["labels"]
    worker = render(helm, CASES["defaults"]).one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= tester.items()
    (source,) = policy["ingress"][0]["from"]
    assert source["podSelector"]["matchLabels"].items() <= tester.items()
    assert not source["podSelector"]["matchLabels"].items() <= worker.items()
    (way,) = [rule for rule in policy["egress"] if rule["ports"][0]["port"] == 8080]
    assert way["to"][0]["podSelector"]["matchLabels"].items() <= worker.items()


def scalers_own_the_replicas(helm):
    assert render(helm, CASES["defaults"]).one("Deployment")["spec"]["replicas"] == 2
    for case, kind in (("by CPU", "HorizontalPodAutoscaler"), ("by lag", "ScaledObject")):
        rendered = render(helm, CASES[case])
        assert "replicas" not in rendered.one("Deployment")["spec"], case
        assert rendered.one(kind)["spec"]["scaleTargetRef"]["name"] == RELEASE
    reference = render(helm, CASES["by lag, a role of its own"]).one("TriggerAuthentication", "-postgres")
    assert reference["spec"]["secretTargetRef"] == [{"parameter": "connection", "name": "reader", "key": "url"}]
    by_parts = render(helm, CASES["by lag, a database by parts"])
    reference = by_parts.one("TriggerAuthentication", "-postgres")["spec"]["secretTargetRef"]
    assert reference == [{"parameter": "password", "name": "db", "key": "pw"}], reference
    server = {"host": "db-0,db-1", "port": "5432", "dbName": "app's", "userName": r"me\you", "sslmode": "verify-full"}
    for trigger in by_parts.one("ScaledObject")["spec"]["triggers"]:
        assert server.items() <= trigger["metadata"].items() and "authenticationRef" in trigger, trigger
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
    open_one = render(helm, CASES["by lag, without a password"])
    assert not open_one.all("TriggerAuthentication")
    for trigger in open_one.one("ScaledObject")["spec"]["triggers"]:
        assert "authenticationRef" not in trigger and trigger["metadata"]["sslmode"] == "prefer", trigger


def the_network_is_closed_but_for_what_is_named(helm):
    closed = render(helm, CASES["closed network"]).one("NetworkPolicy")["spec"]
    assert closed["ingress"] == [] and set(closed["policyTypes"]) == {"Ingress", "Egress"}
    ports = lambda policy: {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert ports(closed) == {53, 5432}, ports(closed)
    assert ports(render(helm, EVERYTHING).one("NetworkPolicy")["spec"]) == {53, 5432, 6379, 4317, 443, 25, 8080}


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
    # The chart knows what its own workers' metrics are labelled with, and asks for them.
    own = f'absent(lanekeeper_workers{{namespace="{NAMESPACE}", job="{RELEASE}"}})'
    missing = next(rule for group in plain for rule in group["rules"] if rule["alert"] == "LanekeeperNoWorkers")
    assert missing["expr"].count(WITHIN_A_DAY) == 1
    anonymous = copy.deepcopy(plain)
    missing["expr"] = missing["expr"].replace(WITHIN_A_DAY, own)
    assert groups == plain
    monitor = render(helm, values).one("ServiceMonitor")["spec"]
    assert "jobLabel" not in monitor, "the job is not the Service's name"
    values = values | {"metrics": values["metrics"] | {"serviceMonitor": {"enabled": False}}}
    groups = render(helm, values).one("PrometheusRule")["spec"]["groups"]
    for group in groups:
        for rule in group["rules"]:
            rule["annotations"].pop("runbook_url")
    assert groups == anonymous
    rule = {"enabled": True, "installationLabels": ["cluster", "namespace"]}
    groups = render(helm, CASES["defaults"] | {"metrics": {"prometheusRule": rule}}).one("PrometheusRule")["spec"]["groups"]
    asked = [rule["expr"] for group in groups for rule in group["rules"]]
    before = [rule["expr"] for group in anonymous for rule in group["rules"]]
    assert asked == [one.replace("(namespace, job", "(cluster, namespace") for one in before]
    assert sum("(cluster, namespace" in one for one in asked) > 8
    promtool_reads(groups)
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


def promtool_reads(groups):
    if not shutil.which("promtool"):
        return  # check-deploy.sh says so
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump({"groups": groups}, file)
        file.flush()
        ran = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


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
        jobs_take_what_they_need, containers_of_the_user_are_as_closed_as_the_worker, resource_attributes_are_one_variable,
        a_database_is_given_by_parts, the_api_is_reached_from_outside_and_nothing_else, the_service_is_what_is_asked_for,
        helm_test_asks_for_readiness, subscriptions_are_applied, scalers_own_the_replicas, the_network_is_closed_but_for_what_is_named,
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
