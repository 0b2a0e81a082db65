{{/*
Converts whole numbers to integers, in place. Helm reads numbers as floats, which `toToml` prints as 300.0, but citetap
expects 300.
*/}}
{{- define "citetap.wholeNumbers" -}}
{{- $node := . }}
{{- if kindIs "map" $node }}
{{- range $key, $value := $node }}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}
{{- $_ := set $node $key (int64 $value) }}
{{- else if or (kindIs "map" $value) (kindIs "slice" $value) }}
{{- include "citetap.wholeNumbers" $value }}
{{- end }}
{{- end }}
{{- else }}
{{- range $value := $node }}
{{- if or (kindIs "map" $value) (kindIs "slice" $value) }}
{{- include "citetap.wholeNumbers" $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* citetap.toml. */}}
{{- define "citetap.config" -}}
{{- $config := deepCopy .Values.config }}
{{- $drain := dict "drain" (printf "%ds" (int .Values.drain.timeoutSeconds)) "drain_delay" (printf "%ds" (int .Values.drain.delaySeconds)) }}
{{- $_ := set $config "timeouts" (mustMerge $drain (default dict $config.timeouts)) }}
{{- include "citetap.wholeNumbers" $config }}
{{- toToml $config }}
{{- end }}
