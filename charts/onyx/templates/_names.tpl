{{/* Names, labels and images: whatever several templates must agree on. */}}

{{- define "onyx.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of the role of Spark servers. */}}
{{- define "onyx.spark.role" -}}
{{ printf "%s-%s-spark" .Release.Namespace (include "onyx.fullname" .) }}
{{- end -}}

{{/* Labels of an object: (dict "root" $ "component" "operator"). */}}
{{- define "onyx.labels" -}}
{{ include "onyx.selector" . }}
app.kubernetes.io/part-of: onyx
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels by which the pods of a component are found; they never change. */}}
{{- define "onyx.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of the pods that the operator makes for an OnyxCluster. */}}
{{- define "onyx.worker.selector" -}}
app.kubernetes.io/name: onyx
app.kubernetes.io/component: worker
{{- end -}}

{{/* An image: (dict "image" .Values.image "root" $). A digest counts instead of the tag. */}}
{{- define "onyx.image" -}}
{{- with .image.registry }}{{ . }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .root.Chart.AppVersion .image.tag }}{{ end -}}
{{- end -}}

{{/* An image that takes over what it does not say from that of the workers: (dict "root" $ "own" values "tag" "-spark"). */}}
{{- define "onyx.image.beside" -}}
{{- $workers := .root.Values.image -}}
{{- $image := dict "digest" .own.digest "registry" (default $workers.registry .own.registry) -}}
{{- $_ := set $image "repository" (default $workers.repository .own.repository) -}}
{{- $_ := set $image "tag" (default (printf "%s%s" (default .root.Chart.AppVersion $workers.tag) .tag) .own.tag) -}}
{{- include "onyx.image" (dict "root" .root "image" $image) -}}
{{- end -}}

{{- define "onyx.image.spark" -}}
{{- include "onyx.image.beside" (dict "root" . "own" .Values.spark.image "tag" "-spark") -}}
{{- end -}}

{{/* The image of the chart's workers. */}}
{{- define "onyx.image.cluster" -}}
{{- $cluster := .Values.cluster -}}
{{- $memory := and $cluster.sparkMemory (not (regexMatch "^[0.]+[A-Za-z]*$" $cluster.sparkMemory)) -}}
{{- if $cluster.image -}}
{{- $cluster.image -}}
{{- else if or .Values.spark.enabled $memory (eq "true" (get $cluster.settings "ONYX_SPARK" | toString)) -}}
{{- include "onyx.image.spark" . -}}
{{- else -}}
{{- include "onyx.image" (dict "root" . "image" .Values.image) -}}
{{- end -}}
{{- end -}}

{{/* Parts that may be empty are used as: {{- with include ... }}{{- . | nindent n }}{{- end }} */}}
{{- define "onyx.pullSecrets" -}}
{{- with .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Where the pods of a component may run: the values of the component. */}}
{{- define "onyx.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* A list of NAME: value as variables of a container. */}}
{{- define "onyx.settings" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "onyx.operator.serviceAccount" -}}
{{- $given := .Values.operator.serviceAccount -}}
{{- if $given.create -}}
{{- default (printf "%s-operator" (include "onyx.fullname" .)) $given.name -}}
{{- else -}}
{{- $given.name -}}
{{- end -}}
{{- end -}}

{{/* The account of the workers' pods, as the operator calls it. */}}
{{- define "onyx.worker.serviceAccount" -}}
{{- $given := .Values.cluster.serviceAccount -}}
{{- default (ternary (printf "%s-worker" .Values.cluster.name) "default" $given.create) $given.name -}}
{{- end -}}

{{/* The namespaces that the operator looks after, as a JSON list; not used when clusterWide. */}}
{{- define "onyx.namespaces" -}}
{{- toJson (default (list .Release.Namespace) .Values.watchNamespaces | sortAlpha | uniq) -}}
{{- end -}}

{{/* "true" if the operator's namespaces are not known by name, so that it needs a ClusterRole. */}}
{{- define "onyx.clusterRole" -}}
{{- if or .Values.clusterWide .Values.watchNamespaceLabels -}}
true
{{- end -}}
{{- end -}}

{{/* The labels of the namespaces that the operator looks after, as a selector of the API. */}}
{{- define "onyx.namespaceLabels" -}}
{{- $pairs := list -}}
{{- range $key, $value := .Values.watchNamespaceLabels -}}
{{- $pairs = append $pairs (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end -}}

{{/* Selects the namespaces that the operator looks after; by labels it cannot be said which. */}}
{{- define "onyx.namespaceSelector" -}}
{{- if include "onyx.clusterRole" . -}}
{}
{{- else -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: In
    values: {{ include "onyx.namespaces" . }}
{{- end -}}
{{- end -}}

{{/* "true" if an optional kind shall be made: (dict "root" $ "create" "auto" "api" "group/v1/Kind"). */}}
{{- define "onyx.wanted" -}}
{{- if eq (toString .create) "auto" -}}
{{- if .root.Capabilities.APIVersions.Has .api }}true{{ end -}}
{{- else if .create }}true{{ end -}}
{{- end -}}

{{- define "onyx.zookeeper.name" -}}
{{ include "onyx.fullname" . }}-zookeeper
{{- end -}}

{{/* Connect string of ZooKeeper: the one given, or the Service of ours. */}}
{{- define "onyx.zookeeper.address" -}}
{{- if .Values.zookeeper.address -}}
{{- .Values.zookeeper.address -}}
{{- else -}}
{{ include "onyx.zookeeper.name" . }}.{{ .Release.Namespace }}.svc:2181
{{- end -}}
{{- end -}}

{{/* Secret with the account of ZooKeeper; empty without. */}}
{{- define "onyx.zookeeper.account" -}}
{{- if .Values.zookeeper.authSecret -}}
{{- .Values.zookeeper.authSecret -}}
{{- else if .Values.zookeeper.account -}}
{{ include "onyx.fullname" . }}-zookeeper-account
{{- end -}}
{{- end -}}

{{/* Secret with the certificate of workers, ZooKeeper and operator; empty without TLS. */}}
{{- define "onyx.tls.secret" -}}
{{- if .Values.tls.existingSecret -}}
{{- .Values.tls.existingSecret -}}
{{- else if .Values.tls.enabled -}}
{{ include "onyx.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{/* "true" if there is TLS to ZooKeeper: one of somebody else does not know our authority. */}}
{{- define "onyx.tls.zookeeper" -}}
{{- $others := and .Values.zookeeper.address (eq (include "onyx.drawn.tls" .) "true") -}}
{{- if and .Values.tls.zookeeper (include "onyx.tls.secret" .) (not $others) }}true{{ end -}}
{{- end -}}

{{/* DNS names in that certificate, as a JSON list. */}}
{{- define "onyx.tls.names" -}}
{{- $names := list (printf "%s-worker.%s.svc" .Values.cluster.name .Release.Namespace) -}}
{{- if not .Values.zookeeper.address -}}
{{- $zookeeper := include "onyx.zookeeper.name" . -}}
{{- $names = append $names (printf "%s.%s.svc" $zookeeper .Release.Namespace) -}}
{{- $names = append $names (printf "*.%s-servers.%s.svc" $zookeeper .Release.Namespace) -}}
{{- end -}}
{{- toJson (concat $names .Values.tls.dnsNames) -}}
{{- end -}}

{{- define "onyx.webhook.name" -}}
{{ include "onyx.fullname" . }}-operator-webhook
{{- end -}}

{{- define "onyx.webhook.configuration" -}}
{{ .Release.Namespace }}-{{ include "onyx.fullname" . }}
{{- end -}}

{{/* What the release makes outside of its namespace, as a JSON list of Kind/name or Kind/namespace/name: the
operator lets it end with the namespace, whose deletion Helm does not see. */}}
{{- define "onyx.outside" -}}
{{- $full := include "onyx.webhook.configuration" . -}}
{{- $found := list -}}
{{- if .Values.webhook.enabled -}}
{{- $found = concat $found (list (printf "ValidatingWebhookConfiguration/%s" $full) (printf "MutatingWebhookConfiguration/%s" $full)) -}}
{{- end -}}
{{- if .Values.rbac.aggregate -}}
{{- $found = concat $found (list (printf "ClusterRole/%s-view" $full) (printf "ClusterRole/%s-edit" $full)) -}}
{{- end -}}
{{- $scopes := list "Cluster" -}}
{{- if not (include "onyx.clusterRole" .) -}}
{{- $scopes = without (include "onyx.namespaces" . | fromJsonArray) .Release.Namespace -}}
{{- end -}}
{{- range $scope := $scopes -}}
{{- $where := ternary "ClusterRole%s/" (printf "Role%%s/%s/" $scope) (eq $scope "Cluster") -}}
{{- $found = concat $found (list (printf "%s%s-operator" (printf $where "") $full) (printf "%s%s-operator" (printf $where "Binding") $full)) -}}
{{- if $.Values.spark.enabled -}}
{{- $found = append $found (printf "%s%s" (printf $where "") (include "onyx.spark.role" $)) -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "(^| )(ClusterRole|[A-Z][a-z]+Webhook)" (join " " $found) -}}
{{- $found = concat $found (list (printf "ClusterRole/%s-installation" $full) (printf "ClusterRoleBinding/%s-installation" $full)) -}}
{{- end -}}
{{- toJson (ternary $found list .Values.rbac.create) -}}
{{- end -}}

{{/* What the operator draws by itself: "true" each. */}}
{{- define "onyx.drawn.account" -}}
{{- if and .Values.zookeeper.account (not .Values.zookeeper.authSecret) }}true{{ end -}}
{{- end -}}
{{- define "onyx.drawn.tls" -}}
{{- if and .Values.tls.enabled (not .Values.tls.existingSecret) (not .Values.tls.certManager.enabled) }}true{{ end -}}
{{- end -}}
{{- define "onyx.drawn.webhook" -}}
{{- if and .Values.webhook.enabled (not .Values.webhook.existingSecret) (not .Values.webhook.certManager.enabled) }}true{{ end -}}
{{- end -}}

{{- define "onyx.drawn.console" -}}
{{- if and .Values.cluster.create .Values.console.enabled (not .Values.console.existingSecret) }}true{{ end -}}
{{- end -}}

{{/* Secrets that it draws, as a JSON object of their names. */}}
{{- define "onyx.drawn" -}}
{{- $drawn := dict -}}
{{- if include "onyx.drawn.account" . -}}
{{- $_ := set $drawn "account" (include "onyx.zookeeper.account" .) -}}
{{- end -}}
{{- if or (include "onyx.drawn.tls" .) (include "onyx.drawn.webhook" .) -}}
{{- $_ := set $drawn "authority" (printf "%s-authority" (include "onyx.fullname" .)) -}}
{{- end -}}
{{- if include "onyx.drawn.tls" . -}}
{{- $_ := set $drawn "tls" (include "onyx.tls.secret" .) -}}
{{- end -}}
{{- if include "onyx.drawn.console" . -}}
{{- $_ := set $drawn "console" (include "onyx.console.token" .) -}}
{{- end -}}
{{- toJson $drawn -}}
{{- end -}}

{{/* The tenancy of the cluster of the chart. */}}
{{- define "onyx.cluster.tenancy" -}}
{{- default (printf "%s.%s" .Release.Namespace .Values.cluster.name) .Values.cluster.tenancyId -}}
{{- end -}}

{{/* Secret with the token of the console. */}}
{{- define "onyx.console.token" -}}
{{- default (printf "%s-console" (include "onyx.fullname" .)) .Values.console.existingSecret -}}
{{- end -}}

{{/* Secret with the account of that tenancy, which the operator makes, as it calls it: with 80 bits of
a digest in base 32; empty without accounts. */}}
{{- define "onyx.console.account" -}}
{{- if include "onyx.zookeeper.account" . -}}
{{- $hex := sha256sum (toJson (include "onyx.cluster.tenancy" .)) -}}
{{- $digest := "" -}}
{{- range $at := until 4 -}}
{{- $bits := int64 (printf "0x%s" (substr (int (mul 5 $at)) (int (add 5 (mul 5 $at))) $hex)) -}}
{{- range $unit := list 32768 1024 32 1 -}}
{{- $digit := int (mod (div $bits $unit) 32) -}}
{{- $digest = printf "%s%s" $digest (substr $digit (int (add 1 $digit)) "abcdefghijklmnopqrstuvwxyz234567") -}}
{{- end -}}
{{- end -}}
{{- printf "%s-worker-zookeeper-%s" .Values.cluster.name $digest -}}
{{- end -}}
{{- end -}}

{{/* ConfigMap with the users' Python files; empty without. */}}
{{- define "onyx.code.configMap" -}}
{{- if .Values.cluster.code.existingConfigMap -}}
{{- .Values.cluster.code.existingConfigMap -}}
{{- else if .Values.cluster.code.files -}}
{{ include "onyx.fullname" . }}-code
{{- end -}}
{{- end -}}

{{/* Claim of the workers' shared volume; empty without. */}}
{{- define "onyx.data.claim" -}}
{{- if .Values.data.existingClaim -}}
{{- .Values.data.existingClaim -}}
{{- else if .Values.data.create -}}
{{ include "onyx.fullname" . }}-data
{{- end -}}
{{- end -}}
