# The only entry points: people and CI call these and nothing else.

CARGO ?= cargo
# Where `cargo install` puts programs.
BIN = $(or $(PREFIX),$(CARGO_HOME),$(HOME)/.cargo)/bin
# Most tests wait, for processes, windows and time limits: two at a time keep a core busy.
TEST_THREADS ?= $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN) )))
# What is checked with the settings in sdk/python, from there.
PYTHON_CODE = . ../server ../../examples/python

.DEFAULT_GOAL := help
.PHONY: help run demo install check test page-test sdk-test lint bench publish gen image dist wheels

help: ## List the targets
	@sed -n 's/^\([a-z]*\): .*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: ## Build the server and start it; nothing else is needed
	QUICK_BUILD=yes $(CARGO) run --profile quick --package tidegate

demo: ## Build the server and start it with sample limits, workflows, workers and calls, to look at the page
	QUICK_BUILD=yes $(CARGO) run --profile quick --package tidegate -- demo

install: ## Install the command tidegate; PREFIX=/usr/local: into /usr/local/bin; LINKS=yes: also as ratelimit and its tools
	$(CARGO) install --locked --path crates/server $(if $(PREFIX),--root $(PREFIX))
	$(if $(LINKS),set -e; for name in ratelimit ratelimit_client ratelimit_config_check; do \
		if [ -e "$(BIN)/$$name" ] && [ ! -L "$(BIN)/$$name" ]; then echo "$(BIN)/$$name is another program: use another PREFIX" >&2; exit 1; fi; \
		ln -sf tidegate "$(BIN)/$$name"; done)

check: ## Run the tests that need nothing but Rust
	$(CARGO) test --workspace --lib --test standalone -- --skip with_redis::

test: ## Install what the tests need, then run all of them
	scripts/deps test
	$(CARGO) test --workspace -- --test-threads $(TEST_THREADS)
	$(CARGO) build --package tidegate
	cd ui && npm run --silent check && node scripts/build.mjs --compare
	$(MAKE) --jobs --output-sync=target page-test sdk-test

page-test:
	cd ui && TIDEGATE_PAGE=embedded npm run --silent test

sdk-test:
	TIDEGATE_BINARY=$(CURDIR)/target/debug/tidegate .venv/bin/python -m pytest --quiet sdk/python/tests

lint: ## Check format, lints, documentation and dependencies
	scripts/deps lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps
	scripts/audit
	scripts/size --check
	scripts/structure --check
	scripts/plain-words --product --check
	cd sdk/python && ../../.venv/bin/ruff check --config pyproject.toml $(PYTHON_CODE)
	cd sdk/python && ../../.venv/bin/ruff format --config pyproject.toml --check $(PYTHON_CODE)

bench: ## Measure the server and the engine, all in one run
	scripts/deps bench
	$(CARGO) build --release --package tidegate --package tidegate-bench
	target/release/tidegate-bench all
	target/release/tidegate-bench workflow --python
	target/release/tidegate-bench workflow --limits
	cd ui && node scripts/measure.mjs ../target/release/tidegate ../target/release/tidegate-bench
	cd ui && TIDEGATE=../target/release/tidegate TIDEGATE_PAGE=embedded node --test tests/large.mjs

publish: ## Put the figures of the last make bench into docs
	cp bench-results/run.json docs/benchmarks.json
	target/release/tidegate-bench tables --run docs/benchmarks.json --document docs/benchmarks.md --readme README.md

image: ## Make the root folder of the container image in target/image, with a static program
	rm -rf target/image
	scripts/image-root target/image

dist: ## Make an archive, its checksum, a bill of materials and release notes in dist
	scripts/dist dist

wheels: ## Make the wheels of the Python SDK and of the server in dist
	scripts/deps test
	scripts/wheels dist

gen: ## Make the committed generated files again
	$(CARGO) run --manifest-path proto/Cargo.toml
	$(CARGO) run --package tidegate -- settings --markdown > docs/settings.md.new
	mv docs/settings.md.new docs/settings.md
	TIDEGATE_GENERATE=1 $(CARGO) test --package tidegate-api --lib openapi
	TIDEGATE_GENERATE=1 $(CARGO) test --package tidegate-workflow --test it actions::the_page_of_actions_is_true_in_a_simulated_store
