# fencegate as a container. BuildKit keeps the build cache, RocksDB with it, between builds.
#
#     docker build -t fencegate .
#     docker run --rm -v fences:/var/lib/fencegate fencegate demo
#
# To serve, give it a config that listens beyond the container's loopback, make the store once with
# `init` (serve never makes one, so that a lost volume stops the start instead of forgetting every
# fence), and then serve:
#
#     docker run --rm -v fences:/var/lib/fencegate -v ./fencegate.toml:/etc/fencegate/fencegate.toml:ro fencegate init
#     docker run -d   -v fences:/var/lib/fencegate -v ./fencegate.toml:/etc/fencegate/fencegate.toml:ro -p 8080:8080 fencegate

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ libclang-dev make python3 \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY Cargo.toml Cargo.lock Makefile ./
COPY src src
COPY tools tools
COPY benches benches
RUN --mount=type=cache,target=/build/target \
    --mount=type=cache,target=/usr/local/cargo/registry \
    make --always-make dist \
 && strip --strip-debug -o /fencegate target/dist/fencegate

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends libstdc++6 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --home-dir /var/lib/fencegate --create-home --shell /usr/sbin/nologin fencegate
COPY --from=build /fencegate /usr/local/bin/fencegate
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/fencegate/
COPY config/fencegate.toml /etc/fencegate/fencegate.toml
ENV FENCEGATE_CONFIG=/etc/fencegate/fencegate.toml
# Relative paths in the config, the store's among them, stand below this.
WORKDIR /var/lib/fencegate
VOLUME /var/lib/fencegate
USER fencegate
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["fencegate"]
CMD ["serve"]
