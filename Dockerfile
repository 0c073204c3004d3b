# Image of the ACPC server.
#
#   docker build -t acpc-server .
#   docker build -t acpc-server:cpu --build-arg ACCELERATOR=cpu --build-arg TORCH_INDEX_URL=<index> .
#
# ACCELERATOR=gpu takes torch from the default package index, whose Linux wheels carry CUDA; the
# image also runs without a GPU. ACCELERATOR=cpu makes a several times smaller image. CPU-only
# wheels are not on the default index, so TORCH_INDEX_URL must name one that has them: the index
# that torch's installation page gives for "CPU", or a mirror of it. With ACCELERATOR=gpu it may
# name an index of wheels for another CUDA version.
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON_VERSION}-slim AS environment
ARG ACCELERATOR=gpu
ARG TORCH_INDEX_URL=
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PATH=/opt/acpc/bin:$PATH
RUN python -m venv /opt/acpc
COPY constraints.txt /
# Torch has a layer of its own: it is most of the image and changes least.
RUN case "$ACCELERATOR:$TORCH_INDEX_URL" in \
        cpu:?*|gpu:*) ;; \
        cpu:) echo "ACCELERATOR=cpu needs TORCH_INDEX_URL, an index of CPU-only torch wheels" >&2; exit 1 ;; \
        *) echo "ACCELERATOR=$ACCELERATOR: use gpu or cpu" >&2; exit 1 ;; \
    esac; \
    pip install --constraint /constraints.txt \
        ${TORCH_INDEX_URL:+--no-deps --index-url "$TORCH_INDEX_URL"} torch
COPY --from=wheel /wheels /wheels
RUN pip install --constraint /constraints.txt "$(echo /wheels/acpc-*.whl)[server,postgres,tracing]" \
    && pip check
# The build fails when the index gave wheels of the other kind.
RUN python -c "import sys, torch; \
found = 'cpu' if torch.version.cuda is None else 'gpu'; \
sys.exit(None if found == '$ACCELERATOR' else f'ACCELERATOR=$ACCELERATOR, but torch {torch.__version__} is for {found}')"

FROM python:${PYTHON_VERSION}-slim
ARG ACCELERATOR=gpu
LABEL org.opencontainers.image.title="acpc-server" \
      org.opencontainers.image.description="Tells, before deployment, whether a world model's predictions survive a visual change." \
      org.opencontainers.image.licenses="Apache-2.0" \
      acpc.accelerator="${ACCELERATOR}"
# The uid is fixed, so that the owner of a bind-mounted /state can be set from outside.
RUN groupadd --gid 10001 acpc \
    && useradd --uid 10001 --gid acpc --no-create-home --home-dir /state --shell /usr/sbin/nologin acpc \
    && install --directory --owner=acpc --group=acpc /checkpoints /datasets /state
COPY --from=environment /opt/acpc /opt/acpc
ENV PATH=/opt/acpc/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    ACPC_CHECKPOINT_ROOT=/checkpoints \
    ACPC_DATASET_ROOT=/datasets \
    ACPC_STATE_DIR=/state \
    ACPC_HOST=0.0.0.0 \
    ACPC_METRICS_HOST=0.0.0.0
USER 10001:10001
WORKDIR /state
# Only /state is written to: the root file system may be read-only.
VOLUME ["/checkpoints", "/datasets", "/state"]
EXPOSE 50051 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-m", "acpc_server.health_check"]
ENTRYPOINT ["acpc-server"]
CMD ["serve"]
