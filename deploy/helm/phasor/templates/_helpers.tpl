{{- /* SPDX-License-Identifier: Apache-2.0
Names and labels. Called with the chart's root context. */ -}}

{{- define "phasor.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* 53 characters, so that "-headless" still fits into the 63 of a name. */ -}}
{{- define "phasor.fullname" -}}
{{- $name := include "phasor.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "phasor.selectorLabels" -}}
app.kubernetes.io/name: {{ include "phasor.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- /* Labels of all objects except pods of the server. */ -}}
{{- define "phasor.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "phasor.labels" -}}
{{ include "phasor.selectorLabels" . }}
{{ include "phasor.commonLabels" . }}
{{- end -}}

{{- define "phasor.testLabels" -}}
app.kubernetes.io/name: {{ include "phasor.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
{{- end -}}

{{- define "phasor.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "phasor.serviceAccountName" -}}
{{- $own := "default" -}}
{{- if .Values.serviceAccount.create -}}{{- $own = include "phasor.fullname" . -}}{{- end -}}
{{- default $own .Values.serviceAccount.name -}}
{{- end -}}
