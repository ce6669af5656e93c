# docker build --target cpu -t warptok:cpu .    docker run -p 8000:8000 warptok:cpu
# docker build --target gpu -t warptok:gpu .    docker run --gpus all -p 8000:8000 warptok:gpu

ARG PYTHON_IMAGE=python:3.12.8-slim-bookworm
ARG CUDA_IMAGE=nvidia/cuda:12.6.3-devel-ubuntu24.04

# The package as a wheel, so that the images hold neither the source tree nor a build tool.
FROM ${PYTHON_IMAGE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY vocabularies vocabularies
COPY gpu gpu
COPY service service
# Where the extensions do not compile the package is made without them, and is slower: not here.
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && test "$(python -m zipfile --list /wheels/warptok-*.whl | grep --count '[.]so ')" = 5

FROM ${PYTHON_IMAGE} AS cpu
COPY --from=build /wheels /wheels
RUN python -m venv /opt/warptok \
    && /opt/warptok/bin/python -m pip install --no-cache-dir "$(echo /wheels/warptok-*.whl)[tracing]" \
    && rm -rf /wheels
RUN groupadd --gid 10001 warptok \
    && useradd --uid 10001 --gid warptok --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin warptok \
    && install --directory --owner=warptok --group=warptok /var/lib/warptok
ENV PATH=/opt/warptok/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WARPTOK_HOST=0.0.0.0 \
    WARPTOK_PORT=8000 \
    WARPTOK_STORE_DIR=/var/lib/warptok
USER warptok
WORKDIR /var/lib/warptok
VOLUME /var/lib/warptok
EXPOSE 8000 8001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['WARPTOK_PORT'] + '/readyz', timeout=4)"]
ENTRYPOINT ["warptok"]
CMD ["serve"]

# The kernels are compiled when the service starts: the image holds NVRTC and the CUDA headers.
FROM ${CUDA_IMAGE} AS gpu
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN python3 -m venv /opt/warptok \
    && /opt/warptok/bin/python -m pip install --no-cache-dir "$(echo /wheels/warptok-*.whl)[gpu,tracing]" \
    && rm -rf /wheels
RUN groupadd --gid 10001 warptok \
    && useradd --uid 10001 --gid warptok --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin warptok \
    && install --directory --owner=warptok --group=warptok /var/lib/warptok \
    && install --directory --owner=warptok --group=warptok /var/cache/warptok
ENV PATH=/opt/warptok/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CUPY_CACHE_DIR=/var/cache/warptok \
    WARPTOK_HOST=0.0.0.0 \
    WARPTOK_PORT=8000 \
    WARPTOK_STORE_DIR=/var/lib/warptok
USER warptok
WORKDIR /var/lib/warptok
VOLUME /var/lib/warptok
EXPOSE 8000 8001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['WARPTOK_PORT'] + '/readyz', timeout=4)"]
ENTRYPOINT ["warptok"]
CMD ["serve"]
