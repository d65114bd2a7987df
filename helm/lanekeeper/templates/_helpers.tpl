{{/* Names, labels, and what all pods have in common. */}}

{{- define "lanekeeper.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "lanekeeper.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := include "lanekeeper.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "lanekeeper.selector" -}}
app.kubernetes.io/name: {{ include "lanekeeper.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lanekeeper.workerSelector" -}}
{{ include "lanekeeper.selector" . }}
app.kubernetes.io/component: worker
{{- end }}

{{- define "lanekeeper.labels" -}}
{{ include "lanekeeper.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "lanekeeper.annotations" -}}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "lanekeeper.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "lanekeeper.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "lanekeeper.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* `sleep` is a field of preStop from 1.30 on, and the image has nothing to run. */}}
{{- define "lanekeeper.preStopSeconds" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}{{ int .Values.preStopSleepSeconds }}{{ else }}0{{ end }}
{{- end }}

{{- define "lanekeeper.gracePeriod" -}}
{{- $worker := default dict .Values.config.worker }}
{{- $grace := 25000 }}
{{- if hasKey $worker "shutdown_grace_ms" }}{{ $grace = int $worker.shutdown_grace_ms }}{{ end }}
{{- $needed := add (int (include "lanekeeper.preStopSeconds" .)) (div (add $grace 999) 1000) 5 }}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds }}
{{- add $needed 5 }}
{{- else if lt (int .Values.terminationGracePeriodSeconds) (int $needed) }}
{{- fail (printf "terminationGracePeriodSeconds is %d: preStop, config.worker.shutdown_grace_ms and five seconds to hand lanes back take %d" (int .Values.terminationGracePeriodSeconds) (int $needed)) }}
{{- else }}
{{- int .Values.terminationGracePeriodSeconds }}
{{- end }}
{{- end }}

{{/* LANEKEEPER_<SECTION>__<KEY> of .Values.config, as a YAML map of strings. */}}
{{- define "lanekeeper.settings" -}}
{{- range $section, $keys := .Values.config }}
{{- range $key, $value := $keys }}
{{ printf "LANEKEEPER_%s__%s" (upper $section) (upper $key) }}: {{ if kindIs "float64" $value }}{{ printf "%.0f" $value | quote }}{{ else }}{{ toString $value | quote }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Of Jobs too, which hooks run before the release's ConfigMaps are there. */}}
{{- define "lanekeeper.commonEnv" -}}
- name: DATABASE_URL_FILE
  value: /etc/lanekeeper/database/url
{{- if and .Values.database.caExistingSecret (not (dig "database" "sslrootcert" "" .Values.config)) }}
- name: LANEKEEPER_DATABASE__SSLROOTCERT
  value: {{ printf "/etc/lanekeeper/database-ca/%s" .Values.database.caKey }}
{{- end }}
{{- end }}

{{- define "lanekeeper.jobEnv" -}}
{{ include "lanekeeper.commonEnv" . }}
{{- range $name, $value := fromYaml (include "lanekeeper.settings" .) }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* A list of [secret, key]. */}}
{{- define "lanekeeper.databaseVolume" -}}
- name: database
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      - key: {{ .key }}
        path: url
{{- with .root.Values.database.caExistingSecret }}
- name: database-ca
  secret:
    secretName: {{ . }}
    defaultMode: 0444
{{- end }}
{{- end }}

{{- define "lanekeeper.databaseMounts" -}}
- name: database
  mountPath: /etc/lanekeeper/database
  readOnly: true
{{- if .Values.database.caExistingSecret }}
- name: database-ca
  mountPath: /etc/lanekeeper/database-ca
  readOnly: true
{{- end }}
{{- end }}

{{- define "lanekeeper.podSecurity" -}}
{{- $fixed := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- toYaml (merge $fixed .Values.podSecurityContext) }}
{{- end }}

{{- define "lanekeeper.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
{{- end }}

{{/* What a pod's spec begins with. */}}
{{- define "lanekeeper.podBasics" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "lanekeeper.podSecurity" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "lanekeeper.migrateContainer" -}}
name: migrate
image: {{ include "lanekeeper.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [migrate]
env:
  {{- include "lanekeeper.jobEnv" . | nindent 2 }}
securityContext:
  {{- include "lanekeeper.containerSecurity" . | nindent 2 }}
{{- with .Values.migrations.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  {{- if and (eq .Values.migrations.mode "initContainer") .Values.database.migrationExistingSecret }}
  - name: migration-database
    mountPath: /etc/lanekeeper/database
    readOnly: true
  {{- if .Values.database.caExistingSecret }}
  - name: database-ca
    mountPath: /etc/lanekeeper/database-ca
    readOnly: true
  {{- end }}
  {{- else }}
  {{- include "lanekeeper.databaseMounts" . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Of pods that migrate in an init container under a role of its own. */}}
{{- define "lanekeeper.migrationVolume" -}}
{{- if and (eq .Values.migrations.mode "initContainer") .Values.database.migrationExistingSecret }}
- name: migration-database
  secret:
    secretName: {{ .Values.database.migrationExistingSecret }}
    defaultMode: 0440
    items:
      - key: {{ .Values.database.migrationKey }}
        path: url
{{- end }}
{{- end }}

{{- define "lanekeeper.appliesSubscriptions" -}}
{{- if and .Values.subscriptions.file .Values.subscriptions.existingConfigMap }}
{{- fail "subscriptions.file and subscriptions.existingConfigMap are both set: keep one of them" }}
{{- end }}
{{- if or .Values.subscriptions.file .Values.subscriptions.existingConfigMap }}yes{{ end }}
{{- end }}

{{/* What scales the fleet. Lanes under a limit are left out: more workers make those no faster. */}}
{{- define "lanekeeper.dueLanesQuery" -}}
SELECT count(*) FROM (SELECT FROM lanekeeper.subscription AS s CROSS JOIN lanekeeper.priority_level AS p
CROSS JOIN LATERAL (SELECT FROM lanekeeper.ready AS r WHERE r.route = s.subscription_id AND r.priority = p.priority
AND r.due_at <= clock_timestamp() LIMIT 20000) AS due
WHERE s.removed_at IS NULL AND s.paused_at IS NULL AND NOT s.settings ? 'limit' LIMIT 20000) AS lanes
{{- end }}

{{- define "lanekeeper.oldestQuery" -}}
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(due.due_at)), 0)::float8
FROM lanekeeper.subscription AS s CROSS JOIN lanekeeper.priority_level AS p
CROSS JOIN LATERAL (SELECT r.due_at FROM lanekeeper.ready AS r WHERE r.route = s.subscription_id AND r.priority = p.priority
AND r.due_at <= clock_timestamp() ORDER BY r.due_at LIMIT 1) AS due
WHERE s.removed_at IS NULL AND s.paused_at IS NULL AND NOT s.settings ? 'limit'
{{- end }}
