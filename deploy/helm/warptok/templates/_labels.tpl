{{- define "warptok.selector" -}}
app.kubernetes.io/name: warptok
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "warptok.labels" -}}
app.kubernetes.io/name: warptok
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "warptok.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
