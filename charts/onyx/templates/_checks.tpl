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
{{- if and (not .Values.tls.enabled) (or .Values.tls.existingSecret .Values.tls.certManager.enabled) -}}
{{- fail "tls: a certificate is given, but enabled is false" -}}
{{- end -}}
{{- if and (not .Values.webhook.enabled) (or .Values.webhook.existingSecret .Values.webhook.certManager.enabled) -}}
{{- fail "webhook: a certificate is given, but enabled is false" -}}
{{- end -}}
{{- if and (not .Values.webhook.enabled) .Values.webhook.clientCaConfigMap -}}
{{- fail "webhook: clientCaConfigMap is given, but enabled is false" -}}
{{- end -}}
{{- if and (not .Values.zookeeper.account) .Values.zookeeper.authSecret -}}
{{- fail "zookeeper: authSecret is given, but account is false" -}}
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
{{- if .Values.cluster.http.route.create -}}
{{- if not .Values.cluster.http.enabled -}}
{{- fail "cluster.http.route.create needs cluster.http.enabled=true" -}}
{{- end -}}
{{- if not .Values.cluster.http.route.parentRefs -}}
{{- fail "cluster.http.route.parentRefs is needed: the Gateways that the route is attached to" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.console.enabled (not .Values.cluster.create) -}}
{{- fail "console.enabled needs cluster.create=true: it shows the cluster of the chart" -}}
{{- end -}}
{{- if .Values.backup.enabled -}}
{{- if not .Values.cluster.create -}}
{{- fail "backup.enabled needs cluster.create=true: it backs up the cluster of the chart" -}}
{{- end -}}
{{- if not .Values.backup.to -}}
{{- fail "backup.to is needed: s3://bucket/prefix, or a folder of the volume (data) or of backup.volumeMounts" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.console.from (not .Values.networkPolicy.enabled) -}}
{{- fail "console.from needs networkPolicy.enabled=true: a NetworkPolicy says who may reach the console" -}}
{{- end -}}
{{- if .Values.console.route.create -}}
{{- if not .Values.console.enabled -}}
{{- fail "console.route.create needs console.enabled=true" -}}
{{- end -}}
{{- if not .Values.console.route.parentRefs -}}
{{- fail "console.route.parentRefs is needed: the Gateways that the route is attached to" -}}
{{- end -}}
{{- if not (mustRegexMatch "(^| )[^ *]+( |$)" (concat .Values.console.hostnames .Values.console.route.hostnames | join " ")) -}}
{{- fail "console.route.hostnames or console.hostnames needs the name by which browsers reach the route, without *: the console refuses other names" -}}
{{- end -}}
{{- end -}}
{{- include "onyx.zookeeper.check" . -}}
{{- end -}}

{{/* The number of ZooKeeper servers against that of those that run. `lookup` finds nothing under
`helm template` and GitOps; there the servers themselves see to it that no data is lost. */}}
{{- define "onyx.zookeeper.check" -}}
{{- if not .Values.zookeeper.address -}}
{{- $name := include "onyx.zookeeper.name" . -}}
{{- $running := lookup "apps/v1" "StatefulSet" .Release.Namespace $name -}}
{{- if $running -}}
{{- $before := int $running.spec.replicas -}}
{{- $after := int .Values.zookeeper.replicas -}}
{{- if gt $before $after -}}
{{- fail (printf "zookeeper.replicas=%d, and %d servers run: fewer servers may lack what the others had agreed on, so their number cannot be lowered; set zookeeper.replicas=%d" $after $before $before) -}}
{{- else if and (gt $after $before) (gt $before 0) (not .Values.zookeeper.grow) -}}
{{- fail (printf "zookeeper.replicas=%d, and %d runs: all jobs pause while an ensemble is formed around its data, which needs a second step. Set zookeeper.grow=true as well, then do as the notes say: kubectl -n %s delete pod %s-0 (docs/operations/clusters.md, From one ZooKeeper server to three)" $after $before .Release.Namespace $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
