{{/* Values that are missing. `helm upgrade --reuse-values` takes the values of the release as they
are, without those that the chart has got since. Every template begins with this one, because
nothing says in which order they are rendered; what all templates of a rendering share holds
whether the first has filled them. Values that null takes away are not filled in:
files/defaults.yaml, which is made from values.yaml, has none of them. */}}
{{- define "onyx.defaults" -}}
{{- if not (hasKey . "filled") -}}
{{- include "onyx.fill" (dict "values" .Values "defaults" (.Files.Get "files/defaults.yaml" | fromYaml)) -}}
{{- $_ := set . "filled" true -}}
{{- end -}}
{{- end -}}

{{- define "onyx.fill" -}}
{{- range $key, $default := .defaults -}}
{{- $given := get $.values $key -}}
{{- if or (not (hasKey $.values $key)) (kindIs "invalid" $given) -}}
{{- $_ := set $.values $key $default -}}
{{- else if and (kindIs "map" $default) (kindIs "map" $given) -}}
{{- include "onyx.fill" (dict "values" $given "defaults" $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}
