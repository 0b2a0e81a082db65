{{/* Rejects values that would start but not work, or not start. The schema rejects some of them too, but without a reason. */}}
{{- define "citetap.refusals" -}}
{{- $store := .Values.store }}
{{- $config := .Values.config }}

{{- if and (include "citetap.several" .) (eq $store.type "sqlite") }}
{{- fail "replicaCount above 1 and autoscaling need a store that pods share: a SQLite file has one writer. Set store.type to postgres or redis, or replicaCount to 1 and autoscaling.enabled to false." }}
{{- end }}
{{- if and (include "citetap.several" .) (eq $store.type "memory") }}
{{- fail "replicaCount above 1 and autoscaling need a store that pods share: with store.type memory each pod would know its own records only. Set store.type to postgres or redis, or replicaCount to 1 and autoscaling.enabled to false." }}
{{- end }}

{{- if include "citetap.shared" . }}
{{- if not (or $store.url $store.existingSecret) }}
{{- fail (printf "store.type %s needs its address: store.existingSecret names a Secret whose key %q holds the URL, or store.url is the URL." $store.type $store.existingSecretKey) }}
{{- end }}
{{- if and $store.url $store.existingSecret }}
{{- fail "store.url and store.existingSecret say the same: keep one." }}
{{- end }}
{{- if and $store.url (not (regexMatch (get (dict "postgres" "^postgres(ql)?://" "redis" "^rediss?://") $store.type) $store.url)) }}
{{- fail (printf "store.url is no URL of store.type %s." $store.type) }}
{{- end }}
{{- else if or $store.url $store.existingSecret }}
{{- fail (printf "store.type %s has no address: leave store.url and store.existingSecret empty, or set store.type to postgres or redis." $store.type) }}
{{- end }}

{{- range $key := list "store" "listen" "admin_listen" }}
{{- if hasKey $config $key }}
{{- fail (printf "config.%s is the chart's: use the values store, service and adminListener." $key) }}
{{- end }}
{{- end }}
{{- if hasKey $config "tls" }}
{{- fail "config.tls is not for this chart, whose probes speak plain HTTP: let TLS end at the ingress or in the mesh." }}
{{- end }}
{{- range $key := list "drain" "drain_delay" }}
{{- if hasKey (default dict $config.timeouts) $key }}
{{- fail (printf "config.timeouts.%s is the chart's, as the pod's grace period depends on it: use drain.timeoutSeconds and drain.delaySeconds." $key) }}
{{- end }}
{{- end }}

{{- if .Values.existingConfigSecret }}
{{- if $config }}
{{- fail "config and existingConfigSecret say the same: keep one." }}
{{- end }}
{{- else }}
{{- if not $config.routes }}
{{- fail "config.routes is empty: say where requests go on to, for example [{name: main, prefix: /, upstream: https://api.example.com}]." }}
{{- end }}
{{- if and (not $config.tenants) (ne (default "auto" $config.auth) "none") }}
{{- fail "every client that can connect could read every record: give config.tenants, or set config.auth to none where a network policy decides who can connect." }}
{{- end }}
{{- end }}
{{- end }}
