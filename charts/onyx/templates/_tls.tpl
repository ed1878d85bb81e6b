{{/* Variables that make a process use TLS to ZooKeeper, with its files in this folder. */}}
{{- define "onyx.zookeeper.tls" -}}
- name: ONYX_ZOOKEEPER_TLS_CA_FILE
  value: {{ . }}/ca.crt
- name: ONYX_ZOOKEEPER_TLS_CERT_FILE
  value: {{ . }}/tls.crt
- name: ONYX_ZOOKEEPER_TLS_KEY_FILE
  value: {{ . }}/tls.key
{{- end -}}

{{/* What leads a client, such as the console, to the cluster of the chart and to its log: variables of
its container, where that mounts files, and the volumes of its pod. */}}
{{- define "onyx.client.variables" -}}
- name: ONYX_TENANCY_ID
  value: {{ include "onyx.cluster.tenancy" . }}
- name: ONYX_JOB_SCHEDULER
  value: {{ .Values.cluster.jobScheduler }}
- name: ONYX_ZOOKEEPER_ADDRESS
  value: {{ include "onyx.zookeeper.address" . }}
{{- if include "onyx.tls.secret" . }}
- name: ONYX_TLS_CA_FILE
  value: /etc/onyx/tls/ca.crt
- name: ONYX_TLS_CERT_FILE
  value: /etc/onyx/tls/tls.crt
- name: ONYX_TLS_KEY_FILE
  value: /etc/onyx/tls/tls.key
- name: ONYX_TLS_SERVER_NAME
  value: {{ .Values.cluster.name }}-worker.{{ .Release.Namespace }}.svc
{{- end }}
{{- if include "onyx.tls.zookeeper" . }}
{{- include "onyx.zookeeper.tls" "/etc/onyx/tls" | nindent 0 }}
{{- end }}
{{- with include "onyx.console.account" . }}
- name: ONYX_ZOOKEEPER_AUTH_USER
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: user}
- name: ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE
  value: /etc/onyx/zookeeper/password
# What is above tenancies is the operator's.
- name: ONYX_ZOOKEEPER_CLOSE_ROOT
  value: never
{{- end }}
{{- end -}}

{{- define "onyx.client.mounts" -}}
{{- if include "onyx.tls.secret" . }}
- {name: tls, mountPath: /etc/onyx/tls, readOnly: true}
{{- end }}
{{- if include "onyx.console.account" . }}
- {name: zookeeper, mountPath: /etc/onyx/zookeeper, readOnly: true}
{{- end }}
{{- end -}}

{{- define "onyx.client.volumes" -}}
{{- with include "onyx.tls.secret" . }}
- name: tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- with include "onyx.console.account" . }}
- name: zookeeper
  secret:
    secretName: {{ . }}
{{- end }}
{{- end -}}
