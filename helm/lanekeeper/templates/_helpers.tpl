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

{{/* A value in quotes of a connection string. Kubernetes reads $$ as one dollar sign. */}}
{{- define "lanekeeper.quoted" -}}
'{{ . | toString | replace "\\" "\\\\" | replace "'" "\\'" | replace "$" "$$" }}'
{{- end }}

{{/* The secret with the connection string of a container: empty where it is given by parts. Of [root, migrates]. */}}
{{- define "lanekeeper.databaseSecret" -}}
{{- $database := .root.Values.database }}
{{- if .migrates }}{{ default $database.existingSecret $database.migrationExistingSecret }}{{ else }}{{ $database.existingSecret }}{{ end }}
{{- end }}

{{/* The secret of a container that is mounted for the database, as a YAML map: secret, key and the file's name, which is
url for a connection string and password by parts. Empty where there is none. Of [root, migrates]. */}}
{{- define "lanekeeper.databaseFile" -}}
{{- $database := .root.Values.database }}
{{- $string := include "lanekeeper.databaseSecret" . }}
{{- $ofOwner := and .migrates (not $string) $database.migrationUser }}
{{- $secret := ternary $database.migrationPasswordExistingSecret $database.passwordExistingSecret (not (empty $ofOwner)) }}
{{- $key := ternary $database.migrationPasswordKey $database.passwordKey (not (empty $ofOwner)) }}
{{- if $string }}
{{- $key = ternary $database.migrationKey $database.key (and .migrates (ne "" $database.migrationExistingSecret)) }}
{{- $secret = $string }}
{{- end }}
{{- with $secret }}
{{- toYaml (dict "secret" . "key" $key "path" (ternary "url" "password" (not (empty $string)))) }}
{{- end }}
{{- end }}

{{/* Where the database is. Of [root, migrates]; of Jobs too, which hooks run before the release's ConfigMaps are there. */}}
{{- define "lanekeeper.databaseEnv" -}}
{{- $database := .root.Values.database }}
{{- if include "lanekeeper.databaseSecret" . }}
- name: DATABASE_URL_FILE
  value: /etc/lanekeeper/database/url
{{- else }}
{{- $user := $database.user }}
{{- if and .migrates $database.migrationUser }}{{ $user = $database.migrationUser }}{{ end }}
{{- $parts := list (printf "host=%s" (include "lanekeeper.quoted" $database.host)) (printf "port=%d" (int $database.port)) }}
{{- $parts = append $parts (printf "dbname=%s" (include "lanekeeper.quoted" $database.name)) }}
{{- $parts = append $parts (printf "user=%s" (include "lanekeeper.quoted" $user)) }}
{{- with $database.sslmode }}{{ $parts = append $parts (printf "sslmode=%s" .) }}{{ end }}
- name: DATABASE_URL
  value: {{ join " " $parts | quote }}
{{- if include "lanekeeper.databaseFile" . }}
- name: LANEKEEPER_DATABASE__PASSWORD_FILE
  value: /etc/lanekeeper/database/password
{{- end }}
{{- end }}
{{- if and $database.caExistingSecret (not (dig "database" "sslrootcert" "" .root.Values.config)) }}
- name: LANEKEEPER_DATABASE__SSLROOTCERT
  value: {{ printf "/etc/lanekeeper/database-ca/%s" $database.caKey }}
{{- end }}
{{- end }}

{{/* The chart's variables (own, YAML) with the user's (extra, a list), which replace the chart's of the same name:
a list with one name twice is refused by some and misread by others. */}}
{{- define "lanekeeper.mergedEnv" -}}
{{- $extra := dict }}
{{- range .extra }}{{ $_ := set $extra .name . }}{{ end }}
{{- $own := fromYamlArray .own }}
{{- $names := list }}
{{- range $own }}
{{- $names = append $names .name }}
{{ toYaml (list (get $extra .name | default .)) }}
{{- end }}
{{- range .extra }}
{{- if not (has .name $names) }}
{{ toYaml (list .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Of [root, migrates]. */}}
{{- define "lanekeeper.jobEnv" -}}
{{- $own := include "lanekeeper.databaseEnv" . }}
{{- range $name, $value := fromYaml (include "lanekeeper.settings" .root) }}
{{- $own = printf "%s\n- name: %s\n  value: %s" $own $name ($value | quote) }}
{{- end }}
{{- include "lanekeeper.mergedEnv" (dict "own" $own "extra" .root.Values.jobs.extraEnv) }}
{{- end }}

{{/* OTEL_RESOURCE_ATTRIBUTES is one variable: what the user has of it goes behind the chart's. */}}
{{- define "lanekeeper.workerEnv" -}}
{{- $own := include "lanekeeper.databaseEnv" (dict "root" . "migrates" false) }}
{{- if .Values.redis.existingSecret }}
{{- $own = printf "%s\n- name: REDIS_URL_FILE\n  value: /etc/lanekeeper/redis/url" $own }}
{{- end }}
{{- $attributes := dict }}
{{- if .Values.otlp.endpoint }}
{{- range $name, $field := dict "POD_NAME" "metadata.name" "POD_NAMESPACE" "metadata.namespace" }}
{{- $own = printf "%s\n- name: %s\n  valueFrom: {fieldRef: {fieldPath: %s}}" $own $name $field }}
{{- end }}
{{- $attributes = dict "service.instance.id" "$(POD_NAME)" "k8s.pod.name" "$(POD_NAME)" "k8s.namespace.name" "$(POD_NAMESPACE)" }}
{{- end }}
{{- $pairs := list }}
{{- range $name, $value := merge (deepCopy .Values.otlp.resourceAttributes) $attributes }}
{{- $pairs = append $pairs (printf "%s=%s" $name $value) }}
{{- end }}
{{- $extra := list }}
{{- range .Values.extraEnv }}
{{- if and $pairs (eq .name "OTEL_RESOURCE_ATTRIBUTES") }}
{{- if or .value .valueFrom }}
{{- $extra = append $extra (merge (dict "name" "EXTRA_RESOURCE_ATTRIBUTES") .) }}
{{- $pairs = append $pairs "$(EXTRA_RESOURCE_ATTRIBUTES)" }}
{{- end }}
{{- else }}
{{- $extra = append $extra . }}
{{- end }}
{{- end }}
{{- include "lanekeeper.mergedEnv" (dict "own" $own "extra" $extra) }}
{{- if $pairs }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ join "," $pairs | quote }}
{{- end }}
{{- end }}

{{/* Of [root, migrates, name]: the volume with the secret for the database, if there is one. */}}
{{- define "lanekeeper.databaseSecretVolume" -}}
{{- with fromYaml (include "lanekeeper.databaseFile" .) }}
- name: {{ $.name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      - key: {{ .key }}
        path: {{ .path }}
{{- end }}
{{- end }}

{{/* Of [root, migrates]. */}}
{{- define "lanekeeper.databaseVolume" -}}
{{ include "lanekeeper.databaseSecretVolume" (merge (dict "name" "database") .) }}
{{- with .root.Values.database.caExistingSecret }}
- name: database-ca
  secret:
    secretName: {{ . }}
    defaultMode: 0444
{{- end }}
{{- end }}

{{/* Of [root, migrates]. */}}
{{- define "lanekeeper.databaseMounts" -}}
{{- $own := and .migrates (include "lanekeeper.migratesBeside" .root) }}
{{- if include "lanekeeper.databaseFile" . }}
- name: {{ ternary "migration-database" "database" (not (empty $own)) }}
  mountPath: /etc/lanekeeper/database
  readOnly: true
{{- end }}
{{- if .root.Values.database.caExistingSecret }}
- name: database-ca
  mountPath: /etc/lanekeeper/database-ca
  readOnly: true
{{- end }}
{{- end }}

{{/* A list of volumes without those of a name that came before. */}}
{{- define "lanekeeper.volumes" -}}
{{- $names := list }}
{{- range . }}
{{- if not (has .name $names) }}
{{- $names = append $names .name }}
{{ toYaml (list .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Containers of the user: what they leave out of their security is as in the chart's own. */}}
{{- define "lanekeeper.containers" -}}
{{- $security := fromYaml (include "lanekeeper.containerSecurity" .) }}
{{- range . }}
{{- $own := mergeOverwrite (deepCopy $security) (deepCopy (default dict .securityContext)) }}
{{ toYaml (list (mergeOverwrite (deepCopy .) (dict "securityContext" $own))) }}
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
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
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
{{- with .Values.jobs.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
env:
  {{- include "lanekeeper.jobEnv" (dict "root" . "migrates" true) | trim | nindent 2 }}
securityContext:
  {{- include "lanekeeper.containerSecurity" . | nindent 2 }}
{{- with .Values.migrations.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "lanekeeper.migrateMounts" . | trim }}
volumeMounts:
  {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "lanekeeper.migrateMounts" -}}
{{ include "lanekeeper.databaseMounts" (dict "root" . "migrates" true) }}
{{- with .Values.jobs.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "lanekeeper.workerMounts" -}}
{{ include "lanekeeper.databaseMounts" (dict "root" . "migrates" false) }}
{{- if .Values.redis.existingSecret }}
- name: redis
  mountPath: /etc/lanekeeper/redis
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "lanekeeper.workerVolumes" -}}
{{ include "lanekeeper.databaseVolume" (dict "root" . "migrates" false) }}
{{ include "lanekeeper.migrationVolume" . }}
{{- if .Values.redis.existingSecret }}
- name: redis
  secret:
    secretName: {{ .Values.redis.existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ .Values.redis.key }}
        path: url
{{- end }}
{{- $extra := .Values.extraVolumes }}
{{- if eq .Values.migrations.mode "initContainer" }}{{ $extra = concat $extra .Values.jobs.extraVolumes }}{{ end }}
{{ include "lanekeeper.volumes" $extra }}
{{- end }}

{{/* Of the Job that migrates. */}}
{{- define "lanekeeper.migrateVolumes" -}}
{{ include "lanekeeper.databaseVolume" (dict "root" . "migrates" true) }}
{{ include "lanekeeper.volumes" .Values.jobs.extraVolumes }}
{{- end }}

{{/* Annotations of a Job (own, a dictionary) with the user's over them. */}}
{{- define "lanekeeper.jobAnnotations" -}}
{{ toYaml (mergeOverwrite .own .root.Values.commonAnnotations .root.Values.jobs.annotations) }}
{{- end }}

{{/* What the pods of both Jobs are labelled with. Of [root, component]. */}}
{{- define "lanekeeper.jobPodMetadata" -}}
labels:
  {{- include "lanekeeper.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with merge (deepCopy .root.Values.jobs.podLabels) .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.jobs.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Whether pods migrate in an init container under a role of its own: with another secret than the workers'. */}}
{{- define "lanekeeper.migratesBeside" -}}
{{- if and (eq .Values.migrations.mode "initContainer") (or .Values.database.migrationExistingSecret .Values.database.migrationUser) }}yes{{ end }}
{{- end }}

{{- define "lanekeeper.migrationVolume" -}}
{{- if include "lanekeeper.migratesBeside" . }}
{{ include "lanekeeper.databaseSecretVolume" (dict "root" . "migrates" true "name" "migration-database") }}
{{- end }}
{{- end }}

{{- define "lanekeeper.appliesSubscriptions" -}}
{{- if and .Values.subscriptions.file .Values.subscriptions.existingConfigMap }}
{{- fail "subscriptions.file and subscriptions.existingConfigMap are both set: keep one of them" }}
{{- end }}
{{- if or .Values.subscriptions.file .Values.subscriptions.existingConfigMap }}yes{{ end }}
{{- end }}

{{/* What scales the fleet. Left out is what more workers make no faster: lanes under a limit, those that wait for a retry
     (not due), and subscriptions that no worker delivers, because the destination's circuit is open or all refuse it. */}}
{{- define "lanekeeper.deliveredCondition" -}}
coalesce((SELECT bool_or(c.state = 'delivering') FROM lanekeeper.subscription_report AS c JOIN lanekeeper.worker AS w ON w.worker_id = c.worker_id
WHERE c.subscription_id = s.subscription_id AND w.beat_at > clock_timestamp() - interval '1 minute'), true)
{{- end }}

{{- define "lanekeeper.dueLanesQuery" -}}
SELECT count(*) FROM (SELECT FROM lanekeeper.subscription AS s CROSS JOIN lanekeeper.priority_level AS p
CROSS JOIN LATERAL (SELECT FROM lanekeeper.ready AS r WHERE r.route = s.subscription_id AND r.priority = p.priority
AND r.due_at <= clock_timestamp() LIMIT 20000) AS due
WHERE s.removed_at IS NULL AND s.paused_at IS NULL AND NOT s.settings ? 'limit'
AND {{ include "lanekeeper.deliveredCondition" . }} LIMIT 20000) AS lanes
{{- end }}

{{- define "lanekeeper.oldestQuery" -}}
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(due.due_at)), 0)::float8
FROM lanekeeper.subscription AS s CROSS JOIN lanekeeper.priority_level AS p
CROSS JOIN LATERAL (SELECT r.due_at FROM lanekeeper.ready AS r WHERE r.route = s.subscription_id AND r.priority = p.priority
AND r.due_at <= clock_timestamp() ORDER BY r.due_at LIMIT 1) AS due
WHERE s.removed_at IS NULL AND s.paused_at IS NULL AND NOT s.settings ? 'limit'
AND {{ include "lanekeeper.deliveredCondition" . }}
{{- end }}
