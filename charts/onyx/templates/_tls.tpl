{{/* Variables that make a process use TLS to ZooKeeper, with the Secret mounted at /etc/onyx/tls. */}}
{{- define "onyx.zookeeper.tls" -}}
- name: ONYX_ZOOKEEPER_TLS_CA_FILE
  value: /etc/onyx/tls/ca.crt
- name: ONYX_ZOOKEEPER_TLS_CERT_FILE
  value: /etc/onyx/tls/tls.crt
- name: ONYX_ZOOKEEPER_TLS_KEY_FILE
  value: /etc/onyx/tls/tls.key
{{- end -}}
