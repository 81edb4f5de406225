{{- /* SPDX-License-Identifier: Apache-2.0
What is derived from values: threads, grace period, which ports are open, flags. */ -}}

{{- define "phasor.grpcPort" -}}50051{{- end -}}
{{- define "phasor.adminPort" -}}50052{{- end -}}
{{- define "phasor.metricsPort" -}}9464{{- end -}}

{{- /* Not empty means true. The kubelet needs this port with TLS, and in a sidecar, which closes the port of the service. */ -}}
{{- define "phasor.hasAdmin" -}}
{{- if or .Values.admin.enabled .Values.tls.enabled .Values.sidecar.enabled -}}true{{- end -}}
{{- end -}}

{{- define "phasor.probePort" -}}
{{- if include "phasor.hasAdmin" . -}}{{ include "phasor.adminPort" . }}{{- else -}}{{ include "phasor.grpcPort" . }}{{- end -}}
{{- end -}}

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

{{- define "phasor.gracePeriod" -}}
{{- $least := add .Values.drain.delaySeconds .Values.drain.timeoutSeconds 5 -}}
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
{{- $uid := dig "securityContext" "runAsUser" 65532 . -}}
{{- if ne (int $uid) 65532 -}}
{{- fail (printf "sidecar.app.securityContext.runAsUser: %d, the server runs as 65532 and shares memory with its own user only" (int $uid)) -}}
{{- end -}}
{{- end -}}
{{- if and $v.policy (not (or $v.tokens.secretName $v.tls.clientCertificates)) -}}
{{- fail "policy: nobody has an identity, set tokens.secretName or tls.clientCertificates too" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- fail (printf "autoscaling.minReplicas: %d is more than maxReplicas, %d" (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}

{{- define "phasor.args" -}}
{{- $tls := "/etc/phasor/tls" -}}
{{- with .Values -}}
{{- if .sidecar.enabled }}
- --listen=unix:{{ .sidecar.directory }}/phasor.sock
- --lease-socket={{ .sidecar.directory }}/lease.sock
{{- if .sidecar.posixSharedMemory.enabled }}
- --shared-memory=true
{{- end }}
{{- else }}
- --listen=0.0.0.0:{{ include "phasor.grpcPort" $ }}
{{- end }}
{{- if include "phasor.hasAdmin" $ }}
- --admin-listen=0.0.0.0:{{ include "phasor.adminPort" $ }}
{{- end }}
{{- if .metrics.enabled }}
- --metrics-listen=0.0.0.0:{{ include "phasor.metricsPort" $ }}
{{- end }}
{{- if .config }}
- --config=/etc/phasor/config/phasor.json
{{- end }}
{{- with .server.backend | default (ternary "cuda" "" .gpu.enabled) }}
- --backend={{ . }}
{{- end }}
# Time for endpoints to forget a pod that is NOT_SERVING, while it still answers.
- --drain-delay={{ .drain.delaySeconds }}s
- --drain-timeout={{ .drain.timeoutSeconds }}s
# Clients find new pods when their connections are renewed.
- --max-connection-age={{ .server.maxConnectionAge }}
- --threads={{ include "phasor.threads" $ }}
- --max-inflight-bytes={{ .server.maxInflightBytes }}
- --pool-bytes={{ .server.poolBytes }}
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
