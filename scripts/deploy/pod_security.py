"""The restricted Pod Security Standard, as https://kubernetes.io/docs/concepts/security/pod-security-standards/
has it: what a pod's spec violates of it."""

import copy

VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
}
SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
SELINUX_TYPES = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}


def containers(spec):
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or []


def violations(spec):
    pod = spec.get("securityContext") or {}
    found = []

    def refuse(condition, what):
        if condition:
            found.append(what)

    for name in ("hostNetwork", "hostPID", "hostIPC"):
        refuse(spec.get(name), name)
    for volume in spec.get("volumes") or []:
        kinds = set(volume) - {"name"}
        refuse(not kinds <= VOLUMES, f"volume {volume['name']} of kind {sorted(kinds)}")
    refuse({s["name"] for s in pod.get("sysctls") or []} - SYSCTLS, "sysctls")
    refuse(pod.get("runAsUser") == 0, "runAsUser 0")
    for scope, context in [("pod", pod)] + [(c["name"], c.get("securityContext") or {}) for c in containers(spec)]:
        selinux = context.get("seLinuxOptions") or {}
        refuse(selinux.get("type") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"), f"{scope}: SELinux")
        refuse((context.get("windowsOptions") or {}).get("hostProcess"), f"{scope}: hostProcess")
        refuse((context.get("appArmorProfile") or {}).get("type") == "Unconfined", f"{scope}: AppArmor")
    for container in containers(spec):
        name, own = container["name"], container.get("securityContext") or {}
        capabilities = own.get("capabilities") or {}
        refuse(own.get("privileged"), f"{name}: privileged")
        refuse(own.get("allowPrivilegeEscalation") is not False, f"{name}: allowPrivilegeEscalation")
        refuse("ALL" not in (capabilities.get("drop") or []), f"{name}: capabilities are kept")
        refuse(set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}, f"{name}: capabilities are added")
        refuse(own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True, f"{name}: runAsNonRoot")
        refuse(own.get("runAsUser") == 0, f"{name}: runAsUser 0")
        profile = (own.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type")
        refuse(profile not in ("RuntimeDefault", "Localhost"), f"{name}: seccomp")
        refuse(own.get("procMount", "Default") != "Default", f"{name}: procMount")
        refuse(any(port.get("hostPort") for port in container.get("ports") or []), f"{name}: hostPort")
    return found


def breaks(spec):
    """Copies of a good spec that violate one rule each: what must be found."""

    def broken(change):
        other = copy.deepcopy(spec)
        change(other, other["containers"][0], other["containers"][0].setdefault("securityContext", {}))
        return other

    yield broken(lambda pod, c, own: pod.update(hostNetwork=True))
    yield broken(lambda pod, c, own: pod["volumes"].append({"name": "host", "hostPath": {"path": "/"}}))
    yield broken(lambda pod, c, own: pod["securityContext"].pop("seccompProfile"))
    yield broken(lambda pod, c, own: own.update(privileged=True))
    yield broken(lambda pod, c, own: own.pop("allowPrivilegeEscalation"))
    yield broken(lambda pod, c, own: own["capabilities"].update(drop=["NET_RAW"]))
    yield broken(lambda pod, c, own: own["capabilities"].update(add=["SYS_ADMIN"]))
    yield broken(lambda pod, c, own: own.update(runAsNonRoot=False))
    yield broken(lambda pod, c, own: own.update(runAsUser=0))
    yield broken(lambda pod, c, own: c.update(ports=[{"containerPort": 1, "hostPort": 1}]))
