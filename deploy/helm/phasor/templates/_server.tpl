{{- /* SPDX-License-Identifier: Apache-2.0
What is derived from values: threads, grace period, which ports are open, flags. */ -}}

{{- define "phasor.grpcPort" -}}50051{{- end -}}
{{- define "phasor.adminPort" -}}50052{{- end -}}
{{- define "phasor.metricsPort" -}}9464{{- end -}}

{{- /* What a gateway lets through. Shared memory is for callers on the server's host; reflection and channelz are for operators. */ -}}
{{- define "phasor.publicServices" -}}
- phasor.v1.PositionEmbeddingService
- phasor.v1.TableService
- inference.GRPCInferenceService
- grpc.health.v1.Health
{{- end -}}

{{- /* Where the Unix sockets are. Empty: calls come over TCP. */ -}}
{{- define "phasor.socketDirectory" -}}
{{- with .Values -}}
{{- if .sidecar.enabled -}}{{ .sidecar.directory }}{{- else if .node.enabled -}}{{ .node.directory }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "phasor.workloadKind" -}}{{- ternary "DaemonSet" "Deployment" .Values.node.enabled -}}{{- end -}}

{{- /* CPUs as a whole number, rounded up: "500m" and 1 become 1, "2500m" and 2.5 become 3. */ -}}
{{- define "phasor.threads" -}}
{{- $cpu := dig "limits" "cpu" "" .Values.resources | default (dig "requests" "cpu" "" .Values.resources) | toString -}}
{{- if gt (int .Values.server.threads) 0 -}}
{{ .Values.server.threads }}
{{- else if hasSuffix "m" $cpu -}}
{{ trimSuffix "m" $cpu | float64 | mulf 0.001 | ceil }}
{{- else -}}
{{ $cpu | default "1" | float64 | ceil }}
{{- end -}}
{{- end -}}

{{- /* Names of a headless Service are cached for 30 s, and gRPC looks one up at most every 30 s. Nobody looks up a socket. */ -}}
{{- define "phasor.drainDelay" -}}
{{- .Values.drain.delaySeconds | default (ternary 5 40 (ne (include "phasor.socketDirectory" .) "")) -}}
{{- end -}}

{{- define "phasor.gracePeriod" -}}
{{- $least := add (include "phasor.drainDelay" . | int) .Values.drain.timeoutSeconds 5 -}}
{{- with .Values.terminationGracePeriodSeconds -}}
{{- if lt (int .) (int $least) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is less than drain.delaySeconds + drain.timeoutSeconds + 5 = %d" (int .) $least) -}}
{{- end -}}
{{- end -}}
{{ .Values.terminationGracePeriodSeconds | default $least }}
{{- end -}}

{{- /* Checks that a schema cannot express, because they compare values. */ -}}
{{- define "phasor.check" -}}
{{- $v := .Values -}}
{{- with $v.sidecar.app -}}
{{- $own := get $v.podSecurityContext "runAsUser" -}}
{{- $uid := dig "securityContext" "runAsUser" $own . -}}
{{- if ne (toString $uid) (toString $own) -}}
{{- fail (printf "sidecar.app.securityContext.runAsUser: %v, the server runs as %v and shares memory with its own user only; use the same" $uid ($own | default "the user of the namespace")) -}}
{{- end -}}
{{- end -}}
{{- $ready := $v.probes.readiness -}}
{{- $notice := mul $ready.periodSeconds $ready.failureThreshold -}}
{{- $delay := include "phasor.drainDelay" . | int -}}
{{- if ge (int $notice) $delay -}}
{{- fail (printf "probes.readiness: fails after %d s, which is not within drain.delaySeconds, %d; use a shorter period or a longer delay" $notice $delay) -}}
{{- end -}}
{{- if and $v.node.enabled $v.node.prepare.enabled (not (and $v.podSecurityContext.runAsUser $v.podSecurityContext.runAsGroup)) -}}
{{- fail "node.prepare.enabled: nobody knows which user the directory is for; set podSecurityContext.runAsUser and runAsGroup, or prepare the directory on the nodes yourself" -}}
{{- end -}}
{{- $native := or (and $v.rest.enabled "rest.enabled") (and $v.sidecar.enabled $v.sidecar.native "sidecar.native") -}}
{{- if and $native (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "%s: needs native sidecars, which Kubernetes %s does not have; use 1.29 or newer" $native .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- $devices := splitList "," (toString $v.gpu.devices) -}}
{{- if and $v.gpu.enabled (ne (toString $v.gpu.devices) "all") (gt (len $devices) (int $v.gpu.count)) -}}
{{- fail (printf "gpu.devices: names %d devices, and the pod has gpu.count, %d; name fewer or ask for more" (len $devices) (int $v.gpu.count)) -}}
{{- end -}}
{{- include "phasor.checkArgs" . -}}
{{- include "phasor.checkMemory" . -}}
{{- include "phasor.checkTables" . -}}
{{- if and $v.policy (not (or $v.tokens.secretName $v.tls.clientCertificates)) -}}
{{- fail "policy: nobody has an identity, set tokens.secretName or tls.clientCertificates too" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- fail (printf "autoscaling.minReplicas: %d is more than maxReplicas, %d" (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- $target := include "phasor.bytes" $v.autoscaling.targetBytesInFlight | float64 -}}
{{- if and $v.autoscaling.enabled (eq $v.autoscaling.metric "bytesInFlight") (ge $target (include "phasor.bytes" $v.server.maxInflightBytes | float64)) -}}
{{- fail (printf "autoscaling.targetBytesInFlight: a pod never holds %v, because server.maxInflightBytes is %v; use half of it" $v.autoscaling.targetBytesInFlight $v.server.maxInflightBytes) -}}
{{- end -}}
{{- end -}}

{{- /* The server does not start with a flag that is given twice, but for lists of addresses. */ -}}
{{- define "phasor.checkArgs" -}}
{{- $given := dict -}}
{{- range include "phasor.args" . | fromYamlArray -}}
{{- $name := regexFind "^--[a-z0-9-]+" . -}}
{{- if and (hasKey $given $name) (not (hasSuffix "listen" $name)) -}}
{{- fail (printf "extraArgs: %s is given twice, and the server refuses that; use the value of the chart that sets it" $name) -}}
{{- end -}}
{{- $_ := set $given $name true -}}
{{- end -}}
{{- end -}}

{{- /* Bytes of a Kubernetes quantity ("2816Mi", "2.5Gi", "3G") or of a size of the server ("1GiB"), as a float. */ -}}
{{- define "phasor.bytes" -}}
{{- $units := dict "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "m" 1e-3 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[A-Za-z]+$" $text | trimSuffix "B" -}}
{{- $number := regexFind "^[0-9.]+(e[+][0-9]+)?" $text | float64 -}}
{{- if $unit -}}{{- mulf $number (get $units $unit) -}}{{- else -}}{{- $number -}}{{- end -}}
{{- end -}}

{{- /* The formula of docs/capacity.md, but for connections, of which nobody knows how many come. 15 MiB is the process itself. */ -}}
{{- define "phasor.checkMemory" -}}
{{- $needed := addf 15728640.0 (mulf 2.5 (include "phasor.bytes" .Values.server.maxInflightBytes | float64)) -}}
{{- $needed = addf $needed (include "phasor.bytes" .Values.server.poolBytes | float64) -}}
{{- $needed = addf $needed (include "phasor.bytes" (dig "plan_cache_bytes" "64MiB" .Values.config) | float64) -}}
{{- if .Values.tables.enabled -}}
{{- $needed = addf $needed (include "phasor.bytes" .Values.tables.maxBytes | float64) -}}
{{- end -}}
{{- if .Values.gpu.enabled -}}
{{- $needed = addf $needed (mulf 536870912.0 .Values.gpu.count) -}}
{{- end -}}
{{- with dig "limits" "memory" "" .Values.resources -}}
{{- if lt (include "phasor.bytes" . | float64) $needed -}}
{{- fail (printf "resources.limits.memory: %v is less than docs/capacity.md asks for with server.maxInflightBytes, server.poolBytes, plan_cache_bytes (and tables.maxBytes, gpu.count), %.0fMi; use a higher limit or a lower budget" . (divf $needed 1048576.0 | ceil)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Pods that do not share a directory do not see each other's tables. */ -}}
{{- define "phasor.checkTables" -}}
{{- with .Values -}}
{{- if and .tables.enabled (ne .tables.accessMode "ReadWriteMany") -}}
{{- $pods := ternary .autoscaling.maxReplicas .replicas .autoscaling.enabled -}}
{{- if or .node.enabled (gt (int $pods) 1) (ne (toString .updateStrategy.maxSurge) "0") -}}
{{- fail (printf "tables.accessMode: %s is for one pod, and there may be several; use ReadWriteMany, or replicas: 1 with updateStrategy.maxSurge: 0" .tables.accessMode) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "phasor.args" -}}
{{- $tls := "/etc/phasor/tls" -}}
{{- with .Values -}}
{{- with include "phasor.socketDirectory" $ }}
- --listen=unix:{{ . }}/phasor.sock
- --lease-socket={{ . }}/lease.sock
{{- if $.Values.node.enabled }}
- --socket-mode={{ $.Values.node.socketMode }}
{{- end }}
{{- if and $.Values.sidecar.enabled $.Values.sidecar.posixSharedMemory.enabled }}
- --shared-memory=true
{{- end }}
{{- else }}
- --listen={{ .server.listenHost }}:{{ include "phasor.grpcPort" $ }}{{ if .rest.enabled }},unix:{{ include "phasor.restSocket" $ }}{{ end }}
{{- end }}
- --admin-listen={{ .server.listenHost }}:{{ include "phasor.adminPort" $ }}
{{- if .metrics.enabled }}
- --metrics-listen={{ .server.listenHost }}:{{ include "phasor.metricsPort" $ }}
{{- else }}
# The image opens the port unless it is told not to (PHASOR_METRICS_LISTEN).
- --metrics-listen=
{{- end }}
{{- if .config }}
- --config=/etc/phasor/config/phasor.json
{{- end }}
{{- with .server.backend | default (ternary "cuda" "" .gpu.enabled) }}
- --backend={{ . }}
{{- end }}
{{- if .gpu.enabled }}
- --devices={{ .gpu.devices }}
- --device-fault={{ .gpu.deviceFault }}
{{- end }}
# Time for endpoints and clients to forget a pod that is NOT_SERVING, while it still answers.
- --drain-delay={{ include "phasor.drainDelay" $ }}s
- --drain-timeout={{ .drain.timeoutSeconds }}s
# Clients find new pods when their connections are renewed.
- --max-connection-age={{ .server.maxConnectionAge }}
- --threads={{ include "phasor.threads" $ }}
- --max-inflight-bytes={{ .server.maxInflightBytes }}
- --pool-bytes={{ .server.poolBytes }}
{{- if .tables.enabled }}
- --tables-dir=/var/lib/phasor/tables
- --max-tables-bytes={{ .tables.maxBytes }}
- --tables-rescan-interval={{ .tables.rescanInterval }}
{{- end }}
{{- if .tls.enabled }}
- --tls-cert={{ $tls }}/tls.crt
- --tls-key={{ $tls }}/tls.key
{{- if .tls.clientCertificates }}
- --tls-client-ca={{ ternary "/etc/phasor/client-ca" $tls (ne .tls.caSecretName "") }}/{{ .tls.caKey }}
{{- end }}
{{- end }}
{{- if .tokens.secretName }}
- --tokens-file=/etc/phasor/tokens/{{ .tokens.key }}
{{- end }}
{{- if .policy }}
- --policy-file=/etc/phasor/policy/policy.json
{{- end }}
{{- with .extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}
