# Everything a fresh clone needs is set up on the way: `make demo`, `make test`, `make bench` and `make lint` each work alone.
# They need Python >= 3.10 (PYTHON=... names another), cargo, and the package registries. A second run skips what is done.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
TEKKEN := $(VENV)/data/tekken.json
RUST := $(shell find compiler/core runtime/core runtime/binding -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock

# Property tests try the same cases in every run (hypothesis too: tests/conftest.py); PROPTEST_RNG_SEED=... tries others.
export PROPTEST_RNG_SEED ?= 20261129

# One configuration of pyo3 for every cargo call, so that pip's build and ours share what they compiled.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python

.PHONY: demo test bench lint fmt lock wheel clean
.DELETE_ON_ERROR:

demo: $(STAMP)/build $(TEKKEN)
	@$(BIN)/python tests/benchmarks/demo.py --tokenizer $(TEKKEN)
	@$(BIN)/python tests/benchmarks/demo_nodes.py --tokenizer $(TEKKEN)

test: lint $(STAMP)/build $(TEKKEN)
	cargo test --locked --quiet -p gramary-compiler -p gramary-runtime -p gramary-fuzz
	$(BIN)/python -m pytest

bench: $(STAMP)/build $(TEKKEN)
	@$(BIN)/gramary bench tests/data/tools.jsonl.gz --tokenizer $(TEKKEN)

lint: $(STAMP)/deps $(STAMP)/types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	cd $(STAMP)/types && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache -p gramary
	cargo fmt --all --check
	cargo clippy --locked --quiet --workspace --all-targets -- -D warnings

fmt: $(STAMP)/deps
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	cargo fmt --all

# Take the newest versions that pyproject.toml allows, for every Python from 3.10 on.
lock: $(STAMP)/venv
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes --extra dev \
		--custom-compile-command "make lock" pyproject.toml -o requirements-dev.lock

wheel: $(STAMP)/deps
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist target *.egg-info runtime/_core*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(STAMP)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or later is needed: make PYTHON=python3.12"; exit 1; }
	@command -v cargo >/dev/null || { echo "cargo is needed: https://rustup.rs"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMP)/types/gramary && touch $@

$(STAMP)/deps: requirements-dev.lock | $(STAMP)/venv
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.lock
	@touch $@

# The editable install also builds the extension; it is repeated when a Rust source or the package's metadata changes.
$(STAMP)/build: $(STAMP)/deps pyproject.toml $(RUST)
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# mypy reads packages by their real names, not through import hooks: the folders under the name they install as.
$(STAMP)/types: $(STAMP)/deps | $(STAMP)/venv
	@for p in compiler runtime cluster; do ln -sfn $(CURDIR)/$$p $@/gramary/$$p; done; touch $@

# A real tokenizer of 131,072 tokens, from a pinned wheel; none of that package's code or dependencies is used.
$(TEKKEN): requirements-data.lock | $(STAMP)/venv
	@mkdir -p $(VENV)/data
	$(BIN)/pip install --quiet --no-deps --require-hashes -r requirements-data.lock
	@cp $(VENV)/lib/python3*/site-packages/mistral_common/data/tekken_240911.json $@
