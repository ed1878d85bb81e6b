{{/* What the schema of the values cannot say, because it is about several of them. */}}
{{- define "onyx.checks" -}}
{{- if and .Values.zookeeper.address (not (contains ":" .Values.zookeeper.address)) -}}
{{- fail "zookeeper.address needs a port: host:2181" -}}
{{- end -}}
{{- if and .Values.webhook.existingSecret .Values.webhook.certManager.enabled -}}
{{- fail "webhook: give existingSecret or turn certManager on, not both" -}}
{{- end -}}
{{- if and .Values.webhook.existingSecret (not .Values.webhook.caBundle) -}}
{{- fail "webhook.existingSecret needs webhook.caBundle, so that the API server trusts it" -}}
{{- end -}}
{{- if and .Values.tls.existingSecret .Values.tls.certManager.enabled -}}
{{- fail "tls: give existingSecret or turn certManager on, not both" -}}
{{- end -}}
{{- if and .Values.data.existingClaim .Values.data.create -}}
{{- fail "data: give existingClaim or set create, not both" -}}
{{- end -}}
{{- if and .Values.cluster.code.existingConfigMap .Values.cluster.code.files -}}
{{- fail "cluster.code: give existingConfigMap or files, not both" -}}
{{- end -}}
{{- if and (not .Values.operator.serviceAccount.create) (not .Values.operator.serviceAccount.name) -}}
{{- fail "operator.serviceAccount.name is needed when create is false" -}}
{{- end -}}
{{- if and .Values.clusterWide .Values.watchNamespaceLabels -}}
{{- fail "give watchNamespaceLabels or set clusterWide, not both" -}}
{{- end -}}
{{- if and .Values.cluster.create .Values.watchNamespaces (not .Values.clusterWide) (not (has .Release.Namespace .Values.watchNamespaces)) -}}
{{- fail (printf "watchNamespaces must contain %q, where the chart makes the OnyxCluster; or set cluster.create to false" .Release.Namespace) -}}
{{- end -}}
{{- end -}}
