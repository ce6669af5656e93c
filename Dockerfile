# docker build --target cpu -t warptok:cpu .          docker run -p 8000:8000 warptok:cpu
# docker build --target render -t warptok:render .    docker run -p 8000:8000 -v MODEL:/mnt/models/base warptok:render
# docker build --target gpu -t warptok:gpu .          docker run --gpus all -p 8000:8000 warptok:gpu
#
# `make image` builds all of them with their labels; deploy/image/try_images.py builds and operates them on a
# machine that reaches no registry of images.

ARG PYTHON_IMAGE=python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

# The package as a wheel, so that the images hold neither the source tree nor a build tool.
FROM ${PYTHON_IMAGE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends binutils g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY deploy/locks deploy/locks
RUN python -m venv /tools \
    && /tools/bin/python -m pip install --no-cache-dir --require-hashes --requirement deploy/locks/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY vocabularies vocabularies
COPY gpu gpu
COPY service service
COPY warptok warptok
# Where the extensions do not compile the package is made without them, and is slower: not here.
RUN /tools/bin/python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
    && test "$(python -m zipfile --list /wheels/warptok-*.whl | grep --count '[.]so ')" \
        = "$(grep --count 'tool.setuptools.ext-modules' pyproject.toml)"
COPY deploy/image deploy/image
RUN mkdir /empty

FROM build AS cpu-root
RUN deploy/image/environment.sh deploy/locks/cpu.txt /opt/warptok \
    && python deploy/image/root.py /opt/warptok /image

# NumPy is built without BLAS, which nothing here calls and which is a seventh of the image.
FROM build AS render-root
RUN deploy/image/environment.sh deploy/locks/render.txt /opt/warptok --no-binary numpy \
        --config-settings setup-args=-Dblas=none --config-settings setup-args=-Dlapack=none \
    && python deploy/image/root.py /opt/warptok /image

# The packages of CUDA bring the compiler of kernels, which compiles them when the service starts.
FROM build AS gpu-root
RUN deploy/image/environment.sh deploy/locks/gpu.txt /opt/warptok \
    && python deploy/image/root.py /opt/warptok /image

# What all images have in common. There is no shell: HEALTHCHECK and ENTRYPOINT are programs.
FROM scratch AS service
ARG PYTHON_IMAGE
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title=warptok \
      org.opencontainers.image.description="A tokenization service for text and DNA whose ids are exactly the reference's ids." \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION} \
      org.opencontainers.image.created=${CREATED} \
      org.opencontainers.image.base.name=${PYTHON_IMAGE}
COPY --from=build --chown=10001:10001 /empty /var/lib/warptok
ENV PATH=/opt/warptok/bin \
    PYTHONUNBUFFERED=1 \
    WARPTOK_HOST=0.0.0.0 \
    WARPTOK_PORT=8000
USER 10001:10001
WORKDIR /var/lib/warptok
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['WARPTOK_PORT'] + '/readyz', timeout=4)"]
ENTRYPOINT ["warptok"]

FROM service AS cpu
COPY --from=cpu-root /image /
ENV WARPTOK_STORE_DIR=/var/lib/warptok
VOLUME /var/lib/warptok
EXPOSE 8001
CMD ["serve"]

# In place of `vllm launch render`; it writes nothing.
FROM service AS render
COPY --from=render-root /image /
CMD ["render", "/mnt/models/base"]

FROM service AS gpu
COPY --from=gpu-root /image /
COPY --from=build --chown=10001:10001 /empty /var/cache/warptok
ENV CUPY_CACHE_DIR=/var/cache/warptok \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    WARPTOK_STORE_DIR=/var/lib/warptok
VOLUME /var/lib/warptok
EXPOSE 8001
CMD ["serve"]
