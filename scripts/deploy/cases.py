"""Values that the chart is rendered with: every switch alone, and those that meet each other."""

DATABASE = {"existingSecret": "lanekeeper-database"}
SUBSCRIPTIONS = {"file": '[subscription.audit]\nstream = "runs"\nadapter = "stdout"\n'}
EVERYTHING = {
    "commonLabels": {"team": "platform"},
    "commonAnnotations": {"owner": "platform"},
    "imagePullSecrets": [{"name": "registry"}],
    "database": DATABASE | {"caExistingSecret": "ca", "migrationExistingSecret": "owner"},
    "redis": {"existingSecret": "redis"},
    "config": {"worker": {"max_lanes": 1000000, "registry": False}, "log": {"filter": "info,lanekeeper=debug"}},
    "subscriptions": SUBSCRIPTIONS | {"prune": True},
    "otlp": {"endpoint": "http://collector:4317", "tracesSampleRatio": 0.1},
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
    "networkPolicy": {"enabled": True, "ingressFrom": [{"namespaceSelector": {}}], "extraEgress": [{"ports": [{"port": 25, "protocol": "TCP"}]}]},
    "podLabels": {"tier": "events"},
    "podAnnotations": {"note": "x"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "extraEnv": [{"name": "AUDIT_SECRET", "valueFrom": {"secretKeyRef": {"name": "audit", "key": "secret"}}}],
    "extraEnvFrom": [{"secretRef": {"name": "more"}}],
    "extraVolumes": [{"name": "tmp", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-own"}, "data": {}}],
}

CASES = {
    "defaults": {},
    "everything with hooks": EVERYTHING,
    "everything with init containers": EVERYTHING | {"migrations": {"mode": "initContainer"}},
    "everything without migrations": EVERYTHING | {"migrations": {"mode": "none"}},
    "init container, one role": {"migrations": {"mode": "initContainer"}, "subscriptions": SUBSCRIPTIONS},
    "subscriptions of a ConfigMap": {"subscriptions": {"existingConfigMap": "mine"}},
    "by CPU": {"autoscaling": {"enabled": True}},
    "by lag": {"keda": {"enabled": True}},
    "by lag, a role of its own": {"keda": {"enabled": True, "existingSecret": "reader", "key": "url"}},
    "closed network": {"networkPolicy": {"enabled": True, "destinations": {"enabled": False}}},
    "bare": {
        "service": {"enabled": False},
        "serviceAccount": {"create": False},
        "podDisruptionBudget": {"enabled": False},
        "preStopSleepSeconds": 0,
        "resources": {},
    },
    "by digest": {"image": {"repository": "registry.example/lanekeeper", "digest": "sha256:" + "0" * 64}},
    "own spread": {"topologySpreadConstraints": [{"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}}]},
    "no lasting names": {"nameOverride": "events", "fullnameOverride": "lanekeeper"},
}
CASES = {name: {"database": DATABASE} | values for name, values in CASES.items()}

# What must not render, and a part of what is said.
REFUSED = {
    "no database": ({"database": {}}, "database.existingSecret is required"),
    "a typing error": ({"replicas": 3}, "replicas"),
    "an unknown setting": ({"config": {"worker": {"max_lane": 3}}}, "max_lane"),
    "a setting of the wrong kind": ({"config": {"worker": {"max_lanes": "many"}}}, "max_lanes"),
    "a moving tag": ({"image": {"tag": "latest"}}, "tag"),
    "root": ({"podSecurityContext": {"runAsUser": 0}}, "runAsUser"),
    "two autoscalers": ({"autoscaling": {"enabled": True}, "keda": {"enabled": True}}, "one of them scales"),
    "an autoscaler upside down": ({"keda": {"minReplicas": 9}}, "minReplicas is above maxReplicas"),
    "a grace period below the drain": ({"terminationGracePeriodSeconds": 20}, "shutdown_grace_ms"),
    "subscriptions twice": ({"subscriptions": SUBSCRIPTIONS | {"existingConfigMap": "x"}}, "keep one of them"),
    "a monitor without a service": ({"service": {"enabled": False}, "metrics": {"serviceMonitor": {"enabled": True}}}, "needs service.enabled"),
    "a mode that does not exist": ({"migrations": {"mode": "sidecar"}}, "mode"),
}
REFUSED = {name: ({"database": DATABASE} | values, part) for name, (values, part) in REFUSED.items()}
