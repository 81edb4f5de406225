# SPDX-License-Identifier: Apache-2.0
# phasor-server and phasor on Debian 12, as one stripped binary under two names.
# Target `runtime` compiles from source (`./dev image`); target `prebuilt` takes the binary that
# deploy/stage-image.sh made from an existing build (tests).
ARG BASE=debian:bookworm-slim

# hadolint ignore=DL3006
FROM ${BASE} AS build
COPY deploy/apt-build-packages.txt /tmp/packages.txt
# Debian 12 is the pin: its versions change only for security fixes.
# hadolint ignore=DL3008,SC2046
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      $(grep -v '^#' /tmp/packages.txt) \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cmake --preset release -DPHASOR_BUILD_TESTS=OFF -DPHASOR_BUILD_BENCHMARKS=OFF \
 && cmake --build --preset release --target phasor-bundle \
 && deploy/stage-image.sh build/release /stage

# hadolint ignore=DL3006
FROM ${BASE} AS base
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="phasor" \
      org.opencontainers.image.description="Exact position embeddings as a service" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Who publishes the port decides who reaches it. PHASOR_TLS_CERT and PHASOR_TLS_KEY turn TLS on, and
# plaintext off (docs/security.md). A flag overrides a variable.
ENV PHASOR_LISTEN=0.0.0.0:50051 \
    PHASOR_ALLOW_PLAINTEXT=true
EXPOSE 50051
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/phasor-server"]

FROM base AS prebuilt
COPY build/image/stage/ /

FROM base AS runtime
COPY --from=build /stage/ /
