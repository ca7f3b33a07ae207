# The front door. `make demo` and `make test` do all the set-up they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_DEPS := $(VENV)/.run-installed
TEST_DEPS := $(VENV)/.test-installed
LIBRARIES := src/unhang/ingest/native/decoder.so src/unhang/record/calls/compiled.so
NCCL := .venv-nccl
NCCL_DEPS := $(NCCL)/.installed
NEWEST := .venv-nccl-newest
NEWEST_DEPS := $(NEWEST)/.installed
FRAMEWORKS := .venv-frameworks
FRAMEWORKS_DEPS := $(FRAMEWORKS)/.installed
LATEST := .venv-latest
WATCHED := torch|accelerate|transformers|lightning|ray|deepspeed
DOCS := .venv-docs
DOCS_DEPS := $(DOCS)/.installed

# The tests start thousands of Pythons: each would compile all of our sources where this is set.
unexport PYTHONDONTWRITEBYTECODE
# Of what the tests need, most is never imported: an import compiles what is, and `import torch` is one.
INSTALL := -m pip install -q --no-compile

.PHONY: help demo demo-live setup test check quick lint bench fuzz fuzz-native parts prove wheel wheel-aarch64 clean debian native setup-nccl test-nccl setup-nccl-newest test-nccl-newest test-frameworks test-newest docs coverage release

help:
	@echo "make demo       install into .venv and diagnose a captured hang (no torch needed)"
	@echo "make test       install everything for the tests, then run the whole suite"
	@echo "make test-nccl  the real ProcessGroupNCCL on a fake device (a CUDA build of torch: 0.5 GB)"
	@echo "make test-nccl-newest  the same on torch 2.15, where nccl is ProcessGroupNCCL2 (0.5 GB)"
	@echo "make test-frameworks  real jobs of accelerate, Trainer, Lightning, Ray Train and others (0.9 GB)"
	@echo "make test-newest  the same with the newest of each, what changed, then test-nccl-newest (4 GB)"
	@echo "make check      lint, and the quick unit tests"
	@echo "make lint       ruff, mypy --strict"
	@echo "make demo-live  hang a real job on this machine and see the verdict (installs torch first)"
	@echo "make fuzz       a million spoilt dumps through both decoders, 100,000 other files; N=... for another number"
	@echo "make fuzz-native  the compiled decoder under the address sanitizer (Rust's nightly toolchain)"
	@echo "make parts      verdicts from parts against those from dumps, on every capture and case"
	@echo "make native     build the compiled decoder and recorder (Rust) into this checkout"
	@echo "make wheel      build the wheels and try each in a fresh environment"
	@echo "make wheel-aarch64  the same with that for aarch64, tried under emulation (Debian's packages: 0.2 GB)"
	@echo "make prove      a million small programs with every mistake; writes docs/accuracy.md"
	@echo "make bench      measure; writes docs/benchmarks.md"
	@echo "make docs       the documentation as a site in build/site, searched without a network"
	@echo "make coverage   how much of each package the unit tests reach"
	@echo "make release    what a release needs, made and checked; publishes nothing"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(RUN_DEPS): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(TEST_DEPS): pyproject.toml requirements/test.txt | $(BIN)/python
	$(BIN)/python $(INSTALL) -r requirements/test.txt -e '.[sql,stacks,zstd,gpu,remote,serve,mcp]'
	$(BIN)/python -c 'import torch.distributed'
	@touch $@ $(RUN_DEPS)

demo: $(RUN_DEPS)
	@$(BIN)/unhang demo --replay

demo-live: $(TEST_DEPS)
	@$(BIN)/unhang demo

setup: $(TEST_DEPS) native

debian:
	@sh requirements/debian.sh

# The libraries are built when what they are made of has changed; cargo comes with `debian`.
native: $(LIBRARIES)

$(LIBRARIES): $(wildcard native/src/*.rs native/recorder/src/*.rs) native/Cargo.toml native/recorder/Cargo.toml \
		src/unhang/ingest/native/library.py src/unhang/record/calls/quick.py | debian
	-$(PYTHON) native/build.py

lint: $(TEST_DEPS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Unit tests but the files that take 2 of 290 CPU seconds or more, as `pytest -p cost_by_file` measures it: these are
# 48 of 261 and take three quarters. The files of the house rules stay in.
SLOWEST := analysis/test_analysis_many_groups.py analysis/test_analysis_nccl.py analysis/test_analysis_properties.py \
	analysis/test_analysis_reports.py analysis/test_analysis_shuffled.py analysis/test_picture.py \
	analysis/test_picture_agrees.py analysis/test_picture_replay.py collect/test_collect_gather.py \
	collect/test_collect_redaction.py ingest/test_case_disturbed.py ingest/test_ingest_archives.py \
	ingest/test_ingest_bounds.py ingest/test_ingest_hostile.py ingest/test_ingest_native.py \
	ingest/test_ingest_parts.py ingest/test_ingest_versions.py lab/test_lab_commands.py lab/test_lab_corpus.py \
	lab/test_lab_engine.py lab/test_lab_layout.py lab/test_lab_prove.py logs/test_log_reality.py \
	logs/test_log_rules.py logs/test_log_threads.py reports/test_report_schema.py reports/test_reports_all.py \
	reports/test_reports_exports.py reports/test_reports_markup.py reports/test_reports_secrets.py \
	reproduce/test_reproducer.py run/test_run_notifying.py run/test_run_pace.py stacks/test_stacks_reading.py \
	stacks/test_stacks_tree.py tables/test_tables_apart.py tables/test_tables_files.py tables/test_tables_fill.py \
	test_absurd_numbers.py test_fleet.py test_isolated.py test_linear.py test_no_room.py \
	test_prefixes_everywhere.py test_pytest_plugin.py test_reasons.py test_serve_list.py test_telltale.py

# mypy keeps one core busy for half a minute.
check: $(TEST_DEPS)
	$(MAKE) -j 2 lint quick

quick: $(TEST_DEPS)
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests/unit $(addprefix --ignore=tests/unit/,$(SLOWEST)) $(ARGS)

# Most of the suite waits, for jobs that hang and programs that start: six at a time keep two cores busy.
# tests/support/longest_first.py says who gets what.
test: $(TEST_DEPS) native
	$(BIN)/python -m pytest -n 6 --dist loadfile $(ARGS)

$(NCCL_DEPS): requirements/nccl.txt
	$(PYTHON) -m venv $(NCCL)
	$(NCCL)/bin/python $(INSTALL) --no-deps -r requirements/nccl.txt
	@touch $@

setup-nccl: $(NCCL_DEPS)

test-nccl: $(TEST_DEPS) $(NCCL_DEPS)
	$(BIN)/python -m pytest -n 3 --dist worksteal tests/nccl $(ARGS)

$(NEWEST_DEPS): requirements/nccl-newest.txt
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python $(INSTALL) --no-deps -r requirements/nccl-newest.txt
	@touch $@

setup-nccl-newest: $(NEWEST_DEPS)

test-nccl-newest: $(TEST_DEPS) $(NEWEST_DEPS)
	UNHANG_LAB_NCCL=$(abspath $(NEWEST))/bin/python $(BIN)/python -m pytest -n 3 --dist worksteal \
		tests/nccl -k "stall or crossed" $(ARGS)

$(FRAMEWORKS_DEPS): requirements/frameworks.txt
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install -q -r requirements/frameworks.txt -e '.[stacks]'
	@touch $@

test-frameworks: $(FRAMEWORKS_DEPS)
	$(FRAMEWORKS)/bin/python -m pytest tests/frameworks $(ARGS)

# Upgraded each time, so nothing says that it is installed. What changed: beside the environment of `test-frameworks`.
test-newest:
	test -x $(LATEST)/bin/python || $(PYTHON) -m venv $(LATEST)
	$(LATEST)/bin/python -m pip install -q --upgrade -r requirements/newest.txt -e '.[stacks]'
	@for each in $(FRAMEWORKS) $(LATEST); do test ! -x $$each/bin/python || $$each/bin/python -m pip list \
		--format freeze | grep -Ei '^($(WATCHED))==' > $$each/watched; done; touch $(LATEST)/watched
	-@diff $$(test -f $(FRAMEWORKS)/watched && echo $(FRAMEWORKS)/watched || echo /dev/null) $(LATEST)/watched
	$(LATEST)/bin/python -m pytest tests/frameworks $(ARGS)
	$(MAKE) test-nccl-newest

fuzz: $(TEST_DEPS) native
	$(BIN)/python tests/fuzz/decoders.py --count $(or $(N),1000000)
	$(BIN)/python tests/fuzz/beside.py --count $(or $(N),100000)

fuzz-native: $(TEST_DEPS) native
	$(BIN)/python tests/fuzz/native.py --count $(or $(N),50000)

parts: $(TEST_DEPS) native
	$(BIN)/python tests/fuzz/parts.py $(ARGS)

prove: $(TEST_DEPS)
	$(BIN)/python -m lab prove --processes 2 --write docs/accuracy.md $(ARGS)

bench: $(TEST_DEPS) native
	$(BIN)/python -m benchmarks

wheel: $(TEST_DEPS) native
	$(BIN)/python -m pip install -q ziglang
	$(BIN)/python native/wheels.py dist

wheel-aarch64: $(TEST_DEPS) native
	$(BIN)/python -m pip install -q ziglang
	$(BIN)/python native/aarch64.py dist

$(DOCS_DEPS): requirements/docs.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install -q -r requirements/docs.txt
	@touch $@

docs: $(DOCS_DEPS)
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

coverage: $(TEST_DEPS) native
	$(BIN)/python -m pip install -q 'pytest-cov>=5'
	$(BIN)/python -m pytest -q -n 2 tests/unit --cov --cov-report= $(ARGS)
	$(BIN)/python tests/support/coverage_by_package.py

# The version is that of src/unhang/_version.py; its changes are in CHANGELOG.md or in changes/.
# What lies in dist from before would be uploaded, too. A wheel of the source package: it has all that it needs.
release:
	@git diff --quiet HEAD || { echo "There are changes that are not committed."; exit 1; }
	rm -rf dist
	$(MAKE) lint docs wheel
	$(DOCS)/bin/towncrier build --draft --version "$$($(BIN)/unhang --version | cut -d' ' -f2)"
	$(BIN)/python -m build --sdist --outdir dist .
	$(BIN)/python -m pip wheel -q --no-deps --wheel-dir build/from-source dist/*.tar.gz
	$(DOCS)/bin/twine check --strict dist/*
	@echo "Next: towncrier build, a commit, git tag -s v$$($(BIN)/unhang --version | cut -d' ' -f2), twine upload dist/*"

clean:
	rm -rf $(VENV) $(NCCL) $(NEWEST) $(FRAMEWORKS) $(DOCS) build dist .pytest_cache .mypy_cache .ruff_cache
