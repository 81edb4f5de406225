{{- /* SPDX-License-Identifier: Apache-2.0
The server's container and volumes. Charts that have Phasor as a dependency named phasor put them into their own pods:
  containers: [..., {{ include "phasor.sidecar.container" .Subcharts.phasor }}]. */ -}}

{{- define "phasor.container" -}}
{{- /* The kubelet speaks no TLS, and the port of the calls refuses connections beyond its limits. */ -}}
{{- $port := include "phasor.adminPort" . -}}
name: phasor
image: {{ include "phasor.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if and .Values.sidecar.enabled .Values.sidecar.native }}
restartPolicy: Always
{{- end }}
args:
  {{- include "phasor.args" . | trim | nindent 2 }}
{{- with .Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "phasor.containerPorts" . | trim }}
ports:
  {{- . | nindent 2 }}
{{- end }}
startupProbe:
  grpc:
    port: {{ $port }}
  {{- with .Values.probes.startup }}
  {{- toYaml . | nindent 2 }}
  failureThreshold: {{ divf $.Values.startupTimeoutSeconds .periodSeconds | ceil }}
  {{- end }}
# Makes a new connection each time, so it also detects a listener that stopped accepting.
livenessProbe:
  grpc:
    port: {{ $port }}
    service: ""
  {{- toYaml .Values.probes.liveness | nindent 2 }}
readinessProbe:
  grpc:
    port: {{ $port }}
    service: phasor.v1.PositionEmbeddingService
  {{- toYaml .Values.probes.readiness | nindent 2 }}
resources:
  {{- $resources := deepCopy .Values.resources }}
  {{- if .Values.gpu.enabled }}
  {{- $limits := dict .Values.gpu.resource .Values.gpu.count }}
  {{- $resources = merge (dict "limits" $limits) $resources }}
  {{- end }}
  {{- toYaml $resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- with include "phasor.volumeMounts" . | trim }}
volumeMounts:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "phasor.sidecar.container" -}}
{{- include "phasor.check" . -}}
{{- include "phasor.container" . -}}
{{- end -}}

{{- /* Kubernetes makes a directory of a node for root; the server runs as another user. */ -}}
{{- define "phasor.node.prepare" -}}
name: prepare
image: {{ .Values.node.prepare.image | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command:
  - chown
  - {{ printf "%v:%v" (.Values.podSecurityContext.runAsUser | int64) (.Values.podSecurityContext.runAsGroup | int64) | quote }}
  - {{ .Values.node.directory }}
resources:
  requests:
    cpu: 10m
    memory: 8Mi
  limits:
    memory: 16Mi
securityContext:
  runAsUser: 0
  runAsNonRoot: false
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop:
      - ALL
    add:
      - CHOWN
volumeMounts:
  - name: phasor-run
    mountPath: {{ .Values.node.directory }}
{{- end -}}

{{- define "phasor.containerPorts" -}}
{{- if not (include "phasor.socketDirectory" .) }}
- name: grpc
  containerPort: {{ include "phasor.grpcPort" . }}
{{- end }}
- name: grpc-admin
  containerPort: {{ include "phasor.adminPort" . }}
{{- if .Values.metrics.enabled }}
- name: metrics
  containerPort: {{ include "phasor.metricsPort" . }}
{{- end }}
{{- end -}}

{{- /* Volumes that the application's container mounts too. */ -}}
{{- define "phasor.sidecar.volumeMounts" -}}
- name: phasor-run
  mountPath: {{ .Values.sidecar.directory }}
{{- if .Values.sidecar.posixSharedMemory.enabled }}
- name: phasor-shm
  mountPath: /dev/shm
{{- end }}
{{- end -}}

{{- define "phasor.volumeMounts" -}}
{{- if .Values.sidecar.enabled }}
{{ include "phasor.sidecar.volumeMounts" . }}
{{- else if .Values.node.enabled }}
- name: phasor-run
  mountPath: {{ .Values.node.directory }}
{{- end }}
{{- if .Values.rest.enabled }}
- name: phasor-rest-run
  mountPath: /run/phasor-rest
{{- end }}
{{- if .Values.config }}
- name: phasor-config
  mountPath: /etc/phasor/config
  readOnly: true
{{- end }}
{{- if .Values.tls.enabled }}
- name: phasor-tls
  mountPath: /etc/phasor/tls
  readOnly: true
{{- if and .Values.tls.clientCertificates .Values.tls.caSecretName }}
- name: phasor-client-ca
  mountPath: /etc/phasor/client-ca
  readOnly: true
{{- end }}
{{- end }}
{{- if .Values.tokens.secretName }}
- name: phasor-tokens
  mountPath: /etc/phasor/tokens
  readOnly: true
{{- end }}
{{- if .Values.policy }}
- name: phasor-policy
  mountPath: /etc/phasor/policy
  readOnly: true
{{- end }}
{{- if .Values.tables.enabled }}
- name: phasor-tables
  mountPath: /var/lib/phasor/tables
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Only the server's group, which is fsGroup, can read Secrets. */ -}}
{{- define "phasor.volumes" -}}
{{- with .Values -}}
{{- if .sidecar.enabled }}
- name: phasor-run
  emptyDir:
    medium: Memory
    sizeLimit: {{ .sidecar.directorySizeLimit }}
{{- if .sidecar.posixSharedMemory.enabled }}
- name: phasor-shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ .sidecar.posixSharedMemory.sizeLimit }}
{{- end }}
{{- else if .node.enabled }}
- name: phasor-run
  hostPath:
    path: {{ .node.directory }}
    type: {{ ternary "DirectoryOrCreate" "Directory" .node.prepare.enabled }}
{{- end }}
{{- if .rest.enabled }}
- name: phasor-rest
  configMap:
    name: {{ include "phasor.fullname" $ }}-rest
- name: phasor-rest-run
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- end }}
{{- if .config }}
- name: phasor-config
  configMap:
    name: {{ include "phasor.fullname" $ }}
{{- end }}
{{- if .tls.enabled }}
- name: phasor-tls
  secret:
    secretName: {{ .tls.secretName }}
    defaultMode: 0440
{{- if and .tls.clientCertificates .tls.caSecretName }}
- name: phasor-client-ca
  secret:
    secretName: {{ .tls.caSecretName }}
    defaultMode: 0440
    items:
      - key: {{ .tls.caKey }}
        path: {{ .tls.caKey }}
{{- end }}
{{- end }}
{{- if .tokens.secretName }}
- name: phasor-tokens
  secret:
    secretName: {{ .tokens.secretName }}
    defaultMode: 0440
    items:
      - key: {{ .tokens.key }}
        path: {{ .tokens.key }}
{{- end }}
{{- if .policy }}
- name: phasor-policy
  configMap:
    name: {{ include "phasor.fullname" $ }}-policy
{{- end }}
{{- if .tables.enabled }}
- name: phasor-tables
  persistentVolumeClaim:
    claimName: {{ .tables.existingClaim | default (printf "%s-tables" (include "phasor.fullname" $)) }}
{{- end }}
{{- with .extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "phasor.sidecar.volumes" -}}
{{- include "phasor.volumes" . | trim -}}
{{- end -}}

{{- define "phasor.tolerations" -}}
{{- if and .Values.gpu.enabled .Values.gpu.tolerateTaint }}
- key: {{ .Values.gpu.taintKey }}
  operator: Exists
  effect: NoSchedule
{{- end }}
{{- with .Values.tolerations }}
{{ toYaml . }}
{{- end }}
{{- end -}}
