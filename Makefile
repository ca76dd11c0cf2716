# Two commands on a bare machine (make and python3-venv are there): `make demo` and `make test`. Each sets everything up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCK := infra/lock
# Nothing is installed that the lock does not know by its sha256, and nothing is built: no package of others runs code while it is installed.
HASHED := --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all:

.PHONY: demo test slow lint lock bump audit clean mutations kills faults gates demos shelf bench peers pools checkov awscli cloud sbom

demo: $(READY)
	$(BIN)/limbeck demo

test: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# The tests that `make test` leaves out, one after another: hours, and servers that want the machine for themselves.
slow: $(READY)
	$(BIN)/python -m pytest -m slow

# What goes further than the default tests; each prints a table.
mutations kills faults gates demos: $(READY)
	$(BIN)/python -m tests.suites.$@

# Every recipe of the shelf on a tiny real model, and a chain through every family of encoders; the default tests run some of each.
shelf: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 -m "slow or not slow" tests/flows/test_shelf.py tests/flows/test_families.py

# Ratios against what a user would pick instead, in one run: BENCH=name for one of them, QUICK=1 for fewer rounds, JSON=file for everything measured.
# PEERS=1: in an environment that has other libraries of distillation.
bench: $(READY) $(if $(PEERS),.venv-peers/.ready)
	$(if $(PEERS),.venv-peers/bin,$(BIN))/python -m tests.benchmarks $(BENCH) $(if $(JSON),--json $(JSON))

# Those libraries beside the locked stack, which they see as it is: none of it is installed a second time.
peers: .venv-peers/.ready

.venv-peers/.ready: $(READY) tests/benchmarks/libraries/requirements.txt
	$(PYTHON) -m venv .venv-peers
	echo "import site; site.addsitedir('$$(realpath $(VENV)/lib/python*/site-packages)')" > $$(echo .venv-peers/lib/python*/site-packages)/locked.pth
	.venv-peers/bin/pip install --quiet --disable-pip-version-check --requirement tests/benchmarks/libraries/requirements.txt
	@touch $@

# The work pools' templates anew, from what Prefect and its packages for AWS and Kubernetes begin with; those two get an environment of their own.
pools: .venv-cloud/.ready
	.venv-cloud/bin/python -m deployments.pools.generate

.venv-cloud/.ready: deployments/pools/requirements.txt
	$(PYTHON) -m venv .venv-cloud
	.venv-cloud/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# AWS's own client, which runs the commands of the runbook in a test; it wants another botocore than the store's.
awscli: .venv-awscli/.ready

.venv-awscli/.ready:
	$(PYTHON) -m venv .venv-awscli
	.venv-awscli/bin/pip install --quiet --disable-pip-version-check 'awscli>=1.45,<2'
	@touch $@

# The cloud's templates by another eye than ours; it wants old versions of libraries that we have, so it gets an environment of its own.
checkov: .venv-checkov/.ready
	.venv-checkov/bin/checkov --directory infra/cloudformation --framework cloudformation --skip-download --compact --quiet

.venv-checkov/.ready:
	$(PYTHON) -m venv .venv-checkov
	.venv-checkov/bin/pip install --quiet --disable-pip-version-check 'checkov>=3.3.30,<4'
	@touch $@

# Workers that lose their instance (NOTICES=20 times), and Prefect's own workers for ECS and Kubernetes at work without a cloud; `make pools` comes first.
cloud: $(READY) .venv-checkov/.ready .venv-awscli/.ready
	LIMBECK_NOTICES=$(or $(NOTICES),2) $(BIN)/python -m pytest -m "slow or not slow" tests/infra

lint: $(READY)
	$(BIN)/ruff check flows tasks deployments tests
	$(BIN)/ruff format --check --quiet flows tasks deployments tests
	$(BIN)/lint-imports
	PYTHONHASHSEED=0 $(BIN)/mypy

# The lock anew, from pyproject.toml; UPGRADE=1 takes the newest versions that fit.
lock: .venv-lock/.ready
	PATH="$(CURDIR)/.venv-lock/bin:$$PATH" .venv-lock/bin/python $(LOCK)/generate.py $(if $(UPGRADE),--upgrade)

# Newer versions than those of the lock, in an environment of their own: what is newer, what excludes the rest, and which tests break.
# ONLY="prefect mlflow": these alone; TESTS="tests/recipe tests/stage": a part of the suite.
bump: .venv-lock/.ready
	PATH="$(CURDIR)/.venv-lock/bin:$$PATH" .venv-lock/bin/python $(LOCK)/bump.py $(if $(ONLY),--only $(ONLY)) $(if $(TESTS),--tests $(TESTS))

# What is known to be wrong with the versions of the lock, where a database of that can be reached.
audit: .venv-audit/.ready
	.venv-audit/bin/python $(LOCK)/audit.py

# What an installation is made of, in CycloneDX; images have theirs in /opt/sbom.cdx.json.
sbom: $(READY) .venv-sbom/.ready
	.venv-sbom/bin/python $(LOCK)/sbom.py $(VENV) --name limbeck --lock stack.txt --lock test.txt --output sbom.cdx.json \
	  --lock $$($(BIN)/pip show torch | grep -q '^Requires:.*nvidia' && echo cuda.txt || echo cpu.txt)

.venv-sbom/.ready: $(LOCK)/sbom.txt
	$(PYTHON) -m venv .venv-sbom
	.venv-sbom/bin/pip install $(HASHED) --requirement $<
	@touch $@

.venv-lock/.ready .venv-audit/.ready: $(LOCK)/tools.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 --requirement $<
	@touch $@

# Torch for processors alone where an index of this machine has a build that the lock knows; else PyPI's, and on Linux CUDA's libraries with it.
$(READY): pyproject.toml $(wildcard $(LOCK)/*.txt)
	@echo "setting up $(VENV): this downloads torch, prefect and mlflow once"
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install $(HASHED) --requirement $(LOCK)/cpu.txt 2>/dev/null || echo "no index here has torch for processors alone: PyPI's is taken"
	$(BIN)/pip install $(HASHED) --requirement $(LOCK)/stack.txt --requirement $(LOCK)/test.txt
	@if $(BIN)/pip show torch | grep -q '^Requires:.*nvidia'; then set -x; $(BIN)/pip install $(HASHED) --requirement $(LOCK)/cuda.txt; fi
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/pip check
	@touch $@

clean:
	rm -rf $(VENV) .venv-audit .venv-awscli .venv-bump .venv-checkov .venv-cloud .venv-lock .venv-peers .venv-sbom
