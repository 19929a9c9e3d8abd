{{- define "gramary.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gramary.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gramary.labels" -}}
{{ include "gramary.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gramary
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "gramary.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "gramary.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Nodes that use Ray need Ray's image. */}}
{{- define "gramary.image" -}}
{{- if .Values.ray.enabled -}}
{{- printf "%s:%s" .Values.ray.image.repository (default .Chart.AppVersion .Values.ray.image.tag) -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "gramary.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{- printf "%s-tls" (include "gramary.fullname" .) -}}
{{- else -}}
{{- .Values.tls.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* The name that every node's certificate has, since peers are found by address. */}}
{{- define "gramary.serverName" -}}
{{- printf "%s-nodes.%s.svc" (include "gramary.fullname" .) .Release.Namespace -}}
{{- end -}}

{{/* What schema checks of single values cannot say. */}}
{{- define "gramary.check" -}}
{{- if not (or .Values.auth.plaintext (include "gramary.tlsSecret" .)) -}}
{{- fail "nodes need certificates: set tls.existingSecret or tls.certManager.enabled; or auth.plaintext if something else encrypts the network" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name: name the Issuer that signs the nodes' certificates" -}}
{{- end -}}
{{- if and .Values.ray.enabled (not .Values.ray.authSecret) -}}
{{- fail "ray.authSecret: name a Secret with the key auth_token; without it anybody in the cluster could run code in Ray" -}}
{{- end -}}
{{- if and (eq .Values.agent.store.type "ephemeral") (not .Values.agent.store.storageClass) -}}
{{- fail "agent.store.storageClass: an ephemeral volume needs one; it must be of local disks" -}}
{{- end -}}
{{- end -}}

{{/* The settings file. Argument: root context. What differs between pods is in their environment. */}}
{{- define "gramary.settings" -}}
{{- $tokens := list "/etc/gramary/auth/token" -}}
{{- $clients := list "/etc/gramary/auth/client-token" -}}
{{- $keys := list "/etc/gramary/auth/mac-key" -}}
{{- if .Values.auth.previous -}}
{{- $tokens = append $tokens "/etc/gramary/auth/token-previous" -}}
{{- $clients = append $clients "/etc/gramary/auth/client-token-previous" -}}
{{- $keys = append $keys "/etc/gramary/auth/mac-key-previous" -}}
{{- end -}}
{{- $settings := dict
  "node" (dict "listen" (list "0.0.0.0:7171"))
  "store" (dict "path" "/var/lib/gramary/store" "access" "live")
  "peers" (dict "dns" (printf "%s:7171" (include "gramary.serverName" .)))
  "auth" (dict "token_files" $tokens "client_token_files" $clients "plaintext" .Values.auth.plaintext)
  "trust" (dict "mac_key_files" $keys)
  "metrics" (dict "listen" "0.0.0.0:9171")
  "log" (dict "level" .Values.log.level "format" "json")
-}}
{{- if include "gramary.tlsSecret" . -}}
{{- $_ := set $settings "tls" (dict "cert_file" "/etc/gramary/tls/tls.crt" "key_file" "/etc/gramary/tls/tls.key" "ca_file" "/etc/gramary/tls/ca.crt" "require_client_cert" .Values.tls.requireClientCert "server_name" (include "gramary.serverName" .)) -}}
{{- end -}}
{{- if .Values.ray.enabled -}}
{{- $_ := set $settings "executor" (dict "kind" "ray" "ray_address" (printf "ray://%s-ray-head-svc:10001" (include "gramary.fullname" .)) "workers" (int .Values.ray.workers.maxReplicas)) -}}
{{- end -}}
{{- if .Values.tracing.enabled -}}
{{- $_ := set $settings "trace" (dict "enabled" true "endpoint" .Values.tracing.endpoint "sample_ratio" .Values.tracing.sampleRatio) -}}
{{- end -}}
{{- $_ := mergeOverwrite $settings (deepCopy .Values.settings) -}}
{{- range $section := keys $settings | sortAlpha }}
[{{ $section }}]
{{- $fields := get $settings $section }}
{{- range $field := keys $fields | sortAlpha }}
{{ $field }} = {{ get $fields $field | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The pod of a node. Arguments: root, component, store (agent: true), values of the component. */}}
{{- define "gramary.podTemplate" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $tls := include "gramary.tlsSecret" $root -}}
metadata:
  labels:
    {{- include "gramary.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    gramary.io/node: "true"
    gramary.io/client: "true"
  annotations:
    checksum/config: {{ include "gramary.settings" $root | sha256sum }}
    kubectl.kubernetes.io/default-container: gramary
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "gramary.serviceAccount" $root }}
  automountServiceAccountToken: false
  # A Service's variables (GRAMARY_PORT=tcp://...) look like settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $root.Values.agent.terminationGracePeriodSeconds }}
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- if and .agent $root.Values.agent.hostPID }}
  hostPID: true
  {{- end }}
  {{- if and .agent $root.Values.agent.priorityClassName }}
  priorityClassName: {{ $root.Values.agent.priorityClassName }}
  {{- end }}
  {{- if and .agent (eq $root.Values.agent.store.type "hostPath") $root.Values.agent.store.chown }}
  initContainers:
    - name: own-store
      image: {{ include "gramary.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      # A host's folder belongs to root when the kubelet makes it, and fsGroup does not apply to it.
      command: [install, -d, -o, "10001", -g, "10001", -m, "0770", /var/lib/gramary, /var/lib/gramary/store]
      securityContext:
        runAsUser: 0
        runAsGroup: 0
        runAsNonRoot: false
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL], add: [CHOWN, FOWNER, DAC_OVERRIDE]}
      resources:
        requests: {cpu: 50m, memory: 32Mi}
        limits: {cpu: 50m, memory: 32Mi}
      volumeMounts:
        - {name: store, mountPath: /var/lib/gramary}
  {{- end }}
  containers:
    - name: gramary
      image: {{ include "gramary.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: [gramary]
      args: [agent, --config, /etc/gramary/gramary.toml]
      env:
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        {{- if .agent }}
        - name: GRAMARY_NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        - name: GRAMARY_STORE_BUDGET_BYTES
          value: {{ $root.Values.agent.store.budgetBytes | quote }}
        - name: GRAMARY_STORE_SEAL_INTERVAL_S
          value: {{ $root.Values.agent.sealIntervalSeconds | quote }}
        {{- else }}
        - name: GRAMARY_NODE_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: GRAMARY_STORE_BUDGET_BYTES
          value: {{ $root.Values.api.budgetBytes | quote }}
        {{- end }}
        - name: GRAMARY_NODE_ADVERTISE
          value: "[$(POD_IP)]:7171"
        {{- if $root.Values.ray.enabled }}
        - name: RAY_AUTH_MODE
          value: token
        - name: RAY_AUTH_TOKEN
          valueFrom: {secretKeyRef: {name: {{ $root.Values.ray.authSecret }}, key: auth_token}}
        {{- else }}
        - name: GRAMARY_EXECUTOR_WORKERS
          valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "1"}}
        {{- end }}
        {{- if .agent }}
        {{- with $root.Values.agent.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- end }}
      ports:
        - {name: grpc, containerPort: 7171}
        - {name: metrics, containerPort: 9171}
      # The kubelet's gRPC probes speak no TLS, so both ask over HTTP.
      startupProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 2
        failureThreshold: 60
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 5
        timeoutSeconds: 3
      livenessProbe:
        httpGet: {path: /livez, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        - {name: store, mountPath: /var/lib/gramary}
        - {name: config, mountPath: /etc/gramary/gramary.toml, subPath: gramary.toml, readOnly: true}
        - {name: auth, mountPath: /etc/gramary/auth, readOnly: true}
        {{- if $tls }}
        - {name: tls, mountPath: /etc/gramary/tls, readOnly: true}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: store
      {{- if not .agent }}
      emptyDir: {sizeLimit: {{ $root.Values.agent.store.size }}}
      {{- else if eq $root.Values.agent.store.type "hostPath" }}
      hostPath: {path: {{ $root.Values.agent.store.hostPath }}, type: DirectoryOrCreate}
      {{- else if eq $root.Values.agent.store.type "ephemeral" }}
      ephemeral:
        volumeClaimTemplate:
          spec:
            accessModes: [ReadWriteOnce]
            storageClassName: {{ $root.Values.agent.store.storageClass }}
            resources: {requests: {storage: {{ $root.Values.agent.store.size }}}}
      {{- else }}
      emptyDir: {sizeLimit: {{ $root.Values.agent.store.size }}}
      {{- end }}
    - name: config
      configMap: {name: {{ include "gramary.fullname" $root }}}
    - name: auth
      secret: {secretName: {{ $root.Values.auth.existingSecret }}, defaultMode: 0440}
    {{- if $tls }}
    - name: tls
      secret: {secretName: {{ $tls }}, defaultMode: 0440}
    {{- end }}
    - name: tmp
      emptyDir: {sizeLimit: 1Gi}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
