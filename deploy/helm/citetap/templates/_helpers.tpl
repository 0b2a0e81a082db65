{{- define "citetap.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "citetap.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "citetap.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "citetap.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "citetap.selectorLabels" -}}
app.kubernetes.io/name: {{ include "citetap.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end }}

{{- define "citetap.labels" -}}
{{ include "citetap.selectorLabels" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "citetap.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "citetap.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "citetap.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* "true" if pods share the store. */}}
{{- define "citetap.shared" -}}
{{- if has .Values.store.type (list "postgres" "redis") }}true{{ end }}
{{- end }}

{{/* "true" if there may be more than one pod. */}}
{{- define "citetap.several" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) }}true{{ end }}
{{- end }}

{{- define "citetap.storeSecret" -}}
{{- default (printf "%s-store" (include "citetap.fullname" .)) .Values.store.existingSecret }}
{{- end }}

{{- define "citetap.claim" -}}
{{- default (include "citetap.fullname" .) .Values.persistence.existingClaim }}
{{- end }}

{{/* The port that Prometheus scrapes. */}}
{{- define "citetap.metricsPort" -}}
{{- if .Values.adminListener.enabled }}admin{{ else }}http{{ end }}
{{- end }}

{{- define "citetap.securityContext" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities:
  drop: ["ALL"]
{{- end }}

{{- define "citetap.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "citetap.adminName" -}}
{{- printf "%s-admin" (include "citetap.fullname" . | trunc 57 | trimSuffix "-") }}
{{- end }}
