# One image for every role, and for the `drigs` command itself:
#
#     docker build -t drigs .
#     docker run --rm drigs --help

FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
ENV CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_DEBUG=none
RUN cargo build --release --locked --bin drigs

# Jobs run inside workers' containers, so there must be a shell and the usual tools.
FROM debian:bookworm-slim
RUN useradd --uid 10001 --user-group --create-home --shell /bin/bash drigs \
    # A fresh volume takes over the owner of what it is mounted upon.
    && install -d -o drigs -g drigs /var/lib/drigs /run/drigs
COPY --from=build /src/target/release/drigs /usr/local/bin/drigs
ENV USER=drigs DRIGS_DATA_DIR=/var/lib/drigs
USER drigs
WORKDIR /home/drigs
# controller: gRPC, and health and metrics. A worker listens nowhere.
EXPOSE 7070 8000
# A controller then hands over its leadership before it ends.
STOPSIGNAL SIGTERM
ENTRYPOINT ["drigs"]
CMD ["--help"]
