{{- /* SPDX-License-Identifier: Apache-2.0
Envoy beside the server: it turns JSON over HTTP into calls over a Unix socket of the pod. */ -}}

{{- define "phasor.restPort" -}}8080{{- end -}}
{{- define "phasor.restSocket" -}}/run/phasor-rest/phasor.sock{{- end -}}

{{- /* A native sidecar, which ends after the server, so that calls of a drain are answered. */ -}}
{{- define "phasor.rest.container" -}}
name: rest
image: {{ .Values.rest.image | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
restartPolicy: Always
args:
  - -c
  - /etc/envoy/envoy.yaml
  - --disable-hot-restart
  - --concurrency
  - "1"
ports:
  - name: http
    containerPort: {{ include "phasor.restPort" . }}
readinessProbe:
  httpGet:
    path: /v1/health
    port: http
    scheme: {{ ternary "HTTPS" "HTTP" .Values.tls.enabled }}
  {{- toYaml .Values.probes.readiness | nindent 2 }}
resources:
  {{- toYaml .Values.rest.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - name: phasor-rest
    mountPath: /etc/envoy
    readOnly: true
  - name: phasor-rest-run
    mountPath: /run/phasor-rest
  {{- if .Values.tls.enabled }}
  - name: phasor-tls
    mountPath: /etc/phasor/tls
    readOnly: true
  {{- end }}
{{- end -}}

{{- define "phasor.rest.envoy" -}}
{{- $limit := include "phasor.bytes" .Values.rest.maxBodyBytes | float64 | int64 -}}
{{- $memory := dig "limits" "memory" "" .Values.rest.resources -}}
node: {id: rest, cluster: phasor}
{{- with $memory }}
# Requests and answers are held whole, so many at a time fill the container: then new ones are refused, and the largest
# of those under way end.
overload_manager:
  refresh_interval: 0.25s
  buffer_factory_config: {minimum_account_to_track_power_of_two: 20}
  resource_monitors:
    - name: envoy.resource_monitors.fixed_heap
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig
        max_heap_size_bytes: {{ include "phasor.bytes" . | float64 | mulf 0.5 | int64 }}
  actions:
    - name: envoy.overload_actions.shrink_heap
      triggers:
        - {name: envoy.resource_monitors.fixed_heap, threshold: {value: 0.80}}
    - name: envoy.overload_actions.reset_high_memory_stream
      triggers:
        - {name: envoy.resource_monitors.fixed_heap, scaled: {scaling_threshold: 0.85, saturation_threshold: 0.95}}
    - name: envoy.overload_actions.stop_accepting_requests
      triggers:
        - {name: envoy.resource_monitors.fixed_heap, threshold: {value: 0.90}}
{{- end }}
static_resources:
  listeners:
    - name: rest
      address:
        socket_address: {address: {{ .Values.server.listenHost | trimAll "[]" | quote }}, port_value: {{ include "phasor.restPort" . }}, ipv4_compat: {{ hasPrefix "[" .Values.server.listenHost }}}
      per_connection_buffer_limit_bytes: 1048576
      listener_filters_timeout: 5s
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: rest
                codec_type: AUTO
                use_remote_address: true
                server_header_transformation: PASS_THROUGH
                normalize_path: true
                merge_slashes: true
                path_with_escaped_slashes_action: REJECT_REQUEST
                max_request_headers_kb: 5
                common_http_protocol_options:
                  max_headers_count: 64
                  headers_with_underscores_action: REJECT_REQUEST
                  idle_timeout: 300s
                http2_protocol_options:
                  max_concurrent_streams: 128
                  initial_stream_window_size: 1048576
                  initial_connection_window_size: 4194304
                request_headers_timeout: 5s
                stream_idle_timeout: 75s
                request_timeout: 300s
                http_filters:
                  {{- if .Values.rest.origins }}
                  - name: envoy.filters.http.cors
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors
                  {{- end }}
                  # The transcoder holds a request whole and does not count a string that has not ended.
                  - name: envoy.filters.http.buffer
                    disabled: true
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer
                      max_request_bytes: {{ mul 2 $limit }}
                  - name: envoy.filters.http.grpc_json_transcoder
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder
                      proto_descriptor: /etc/envoy/phasor.pb
                      services:
                        {{- include "phasor.publicServices" . | nindent 24 }}
                      convert_grpc_status: true
                      request_validation_options: {reject_unknown_method: true, reject_unknown_query_parameters: true}
                      print_options: {preserve_proto_field_names: true, always_print_primitive_fields: true}
                      max_request_body_size: {{ mul 2 $limit }}
                      max_response_body_size: {{ $limit }}
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                route_config:
                  name: rest
                  virtual_hosts:
                    - name: rest
                      domains: ["*"]
                      {{- with .Values.rest.origins }}
                      typed_per_filter_config:
                        envoy.filters.http.cors:
                          "@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy
                          allow_origin_string_match:
                            {{- range . }}
                            - exact: {{ . | quote }}
                            {{- end }}
                          allow_methods: GET, POST
                          allow_headers: content-type, authorization
                          max_age: "600"
                      {{- end }}
                      routes:
                        # REST before it is transcoded, and the calls that it becomes.
                        - match: {safe_regex: {regex: "/v[12](/.*)?"}}
                          route: &route
                            cluster: phasor
                            timeout: 0s
                            max_stream_duration: {grpc_timeout_header_max: 0s}
                          typed_per_filter_config:
                            envoy.filters.http.buffer:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.BufferPerRoute
                              buffer: {max_request_bytes: {{ mul 2 $limit }}}
                        {{- range include "phasor.publicServices" . | fromYamlArray }}
                        - match: {prefix: /{{ . }}/}
                          route: *route
                        {{- end }}
          {{- if .Values.tls.enabled }}
          transport_socket_connect_timeout: 10s
          transport_socket:
            name: envoy.transport_sockets.tls
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
              common_tls_context:
                alpn_protocols: [h2, http/1.1]
                tls_params: {tls_minimum_protocol_version: TLSv1_2}
                tls_certificate_sds_secret_configs:
                  - name: server
                    sds_config: {path_config_source: {path: /etc/envoy/certificate.yaml}}
          {{- end }}
  clusters:
    - name: phasor
      type: STATIC
      connect_timeout: 1s
      load_assignment:
        cluster_name: phasor
        endpoints:
          - lb_endpoints:
              - endpoint: {address: {pipe: {path: {{ include "phasor.restSocket" . }}}}}
      per_connection_buffer_limit_bytes: 1048576
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config:
            http2_protocol_options: {max_concurrent_streams: 128}
{{- end -}}
