#!/bin/sh
# Makes the environment of an image from its lock and the wheel of warptok, with its SBOM.
#     environment.sh LOCK ENVIRONMENT [OPTION OF pip wheel]...
# Runs with the tools of the Dockerfile's stage `build`, which also build packages without a wheel for
# this architecture.
set -eu
lock=$1 environment=$2
shift 2
PATH=/tools/bin:$PATH /tools/bin/python -m pip wheel --no-cache-dir --no-deps --require-hashes --no-build-isolation "$@" \
  --wheel-dir /locked --requirement "$lock"
python -m venv --without-pip "$environment"
/tools/bin/python -m pip --python "$environment/bin/python" install --no-cache-dir --no-compile --no-deps \
  --no-index /locked/*.whl /wheels/warptok-*.whl
# What only developers of the libraries need, and the symbols of their code.
site=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
find "$site" -type d \( -name tests -o -path '*/numpy/_core/include' -o -path '*/numpy/f2py' \
  -o -path '*/pyarrow/include' -o -path '*/pyarrow/src' \) -prune -exec rm -r {} +
find "$site" -type f \( -name '*.a' -o -name '*.pyi' -o -name '*.pxd' -o -name '*.pyx' \
  -o -path '*/numpy/_core/_simd.*' -o -path '*/numpy/linalg/lapack_lite.*' \) -delete
# Not of libraries whose places patchelf has changed, which strip may break.
find "$site" -name '*.so' ! -path '*.libs/*' ! -path '*/nvidia/*' ! -path '*/cupy*' \
  -exec strip --strip-unneeded {} +
/tools/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
  --output-file "$environment/sbom.cdx.json" "$environment/bin/python"
# Imports leave the bytecode of what the service uses, which a read-only root cannot get later.
for module in service.cli.encode service.server.uvicorn_server service.multiprocess.supervisor \
  service.apis.grpc.server service.training.worker gpu.engine cupy; do
  "$environment/bin/python" -c "import $module" 2>/dev/null || echo "$module: not in this image"
done
