# docker build -t citetap:local .
# docker run --rm -p 127.0.0.1:8787:8787 citetap:local demo --listen 0.0.0.0:8787 --store /data/demo.db

# The builder and the final image are the same Debian release: the binary links that release's glibc.
# The full image, not -slim: aws-lc-sys and libsqlite3-sys compile C.
FROM rust:1.95-bookworm AS build
WORKDIR /build

# Dependencies alone, against an empty crate: this layer is rebuilt only when the manifest or the lock file changes.
COPY Cargo.toml Cargo.lock ./
# The workspace names them; nothing of them is built.
COPY tests/bench/Cargo.toml tests/bench/
COPY tests/counts/Cargo.toml tests/counts/
COPY tests/fuzz/Cargo.toml tests/fuzz/
RUN mkdir src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs \
    && echo 'fn main() {}' > build.rs \
    && cargo build --release --locked

# .dockerignore lets through only what the build reads.
COPY . .
# What `citetap --version` says: there is no repository here to ask.
ARG REVISION=unknown
ENV CITETAP_COMMIT=${REVISION}
# The sources' timestamps may be older than the empty crate's build, and cargo goes by timestamps.
RUN touch build.rs src/main.rs src/lib.rs \
    && cargo build --release --locked \
    && mkdir /data

FROM gcr.io/distroless/cc-debian12:nonroot

ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="citetap" \
      org.opencontainers.image.description="An SSE proxy that taps the citations out of AI chat streams, relays every byte, and keeps what each answer rests on" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

COPY --from=build /build/target/release/citetap /usr/local/bin/citetap
# There is no shell here to chown with; a fresh volume takes over the ownership of this empty directory.
COPY --from=build --chown=65532:65532 /data /data

# A container is reached from outside, so it listens on every interface. citetap refuses to do that unless tenants are
# configured (whoever can connect could read every record) or CITETAP__AUTH=none is said. The image does not say it for
# you: configure tenants, or say it where the network around the container makes it true, or listen on 127.0.0.1 as a
# sidecar does. The environment wins over a file, so listen and store are changed with -e, not in citetap.toml.
ENV CITETAP_LISTEN=0.0.0.0:8787 \
    CITETAP_STORE=sqlite:/data/citetap.db \
    SQLITE_TMPDIR=/data

# /data is the only place written to: run with a read-only root.
VOLUME ["/data"]
# A file mounted at /etc/citetap/citetap.toml is found without --config.
WORKDIR /etc/citetap
USER 65532:65532
EXPOSE 8787

HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["/usr/local/bin/citetap", "health"]
ENTRYPOINT ["/usr/local/bin/citetap"]
CMD ["serve"]
