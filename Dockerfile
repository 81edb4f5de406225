# SPDX-License-Identifier: Apache-2.0
# phasor-server and phasor, as one stripped binary under two names, on a base that has the C library (docs/images.md).
# Target `runtime` compiles from source (`./dev image`); target `prebuilt` takes the binary that
# deploy/stage-image.sh made from an existing build (tests).
ARG BASE=debian:bookworm-slim
# Compiles; Debian 12, whatever the base is.
ARG BUILD_BASE=debian:bookworm-slim
# Where a CUDA compiler comes from: none, image or wheels.
ARG CUDA=none
# Not newer than Debian 12 inside: its programs run there.
ARG CUDA_IMAGE=nvidia/cuda:13.0.1-devel-ubuntu22.04

# hadolint ignore=DL3006
FROM ${BUILD_BASE} AS cuda-none
RUN mkdir /cuda

# hadolint ignore=DL3006
FROM ${CUDA_IMAGE} AS cuda-image
WORKDIR /usr/local/cuda
RUN mkdir -p /cuda/lib \
 && cp -aL bin nvvm include /cuda/ \
 && cp -aL lib64/libcudart_static.a lib64/libcudadevrt.a /cuda/lib/

# hadolint ignore=DL3006
FROM ${BUILD_BASE} AS cuda-wheels
COPY deploy/cuda-wheels.txt /tmp/wheels.txt
# The secret, if it is given, has the certificates that pip trusts: behind a proxy with its own.
# hadolint ignore=DL3008
RUN --mount=type=secret,id=certificates \
    apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates python3-pip \
 && rm -rf /var/lib/apt/lists/* \
 && if [ -e /run/secrets/certificates ]; then export PIP_CERT=/run/secrets/certificates; fi \
 && pip install --no-cache-dir --break-system-packages --target /wheels -r /tmp/wheels.txt \
 && mv /wheels/nvidia/cu13 /cuda

# hadolint ignore=DL3006
FROM cuda-${CUDA} AS cuda

# hadolint ignore=DL3006
FROM ${BUILD_BASE} AS build
COPY deploy/apt-build-packages.txt /tmp/packages.txt
# Debian 12 is the pin: its versions change only for security fixes.
# hadolint ignore=DL3008,SC2046
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      $(grep -v '^#' /tmp/packages.txt) \
 && rm -rf /var/lib/apt/lists/*
COPY --from=cuda /cuda /usr/local/cuda
WORKDIR /src
COPY . .
ARG CUDA
ARG CUDA_ARCHITECTURES="75;80;86;89;90;100;120"
ARG SOURCE_DATE_EPOCH
RUN cmake --preset release -DPHASOR_BUILD_TESTS=OFF -DPHASOR_BUILD_BENCHMARKS=OFF \
      -DPHASOR_CUDA="$(test "$CUDA" = none && echo OFF || echo ON)" \
      -DPHASOR_CUDA_ARCHITECTURES="$CUDA_ARCHITECTURES" \
 && cmake --build --preset release --target phasor-bundle \
 && deploy/stage-image.sh build/release /stage

# No command runs from here on: a base needs no shell.
# hadolint ignore=DL3006
FROM ${BASE} AS base
ARG BASE
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="phasor" \
      org.opencontainers.image.description="Exact position embeddings as a service" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.url="${SOURCE}" \
      org.opencontainers.image.documentation="${SOURCE}" \
      org.opencontainers.image.vendor="The Phasor authors" \
      org.opencontainers.image.base.name="${BASE}"
# Who publishes the port decides who reaches it. PHASOR_TLS_CERT and PHASOR_TLS_KEY turn TLS on, and
# plaintext off (docs/security.md). A flag overrides a variable.
ENV PHASOR_LISTEN=0.0.0.0:50051 \
    PHASOR_ALLOW_PLAINTEXT=true \
    PHASOR_METRICS_LISTEN=0.0.0.0:9464
EXPOSE 50051 9464
USER 65532:65532
# For engines without probes of their own; Kubernetes ignores it, and images in OCI's own format have no place for it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
  CMD ["/usr/local/bin/phasor", "health", "--server=127.0.0.1:50051"]
ENTRYPOINT ["/usr/local/bin/phasor-server"]

FROM base AS prebuilt
COPY build/image/stage/ /

FROM base AS runtime
COPY --from=build /stage/ /
