{{/* Variables that make a process use TLS to ZooKeeper, with its files in this folder. */}}
{{- define "onyx.zookeeper.tls" -}}
- name: ONYX_ZOOKEEPER_TLS_CA_FILE
  value: {{ . }}/ca.crt
- name: ONYX_ZOOKEEPER_TLS_CERT_FILE
  value: {{ . }}/tls.crt
- name: ONYX_ZOOKEEPER_TLS_KEY_FILE
  value: {{ . }}/tls.key
{{- end -}}
