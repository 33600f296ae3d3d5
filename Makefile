# The only entry points: people and CI call these and nothing else.

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help run test lint bench gen

help: ## List the targets
	@sed -n 's/^\([a-z]*\): .*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: ## Build the server and start it; nothing else is needed
	$(CARGO) run --release --package tidegate

test: ## Install what the tests need, then run all of them
	scripts/deps test
	$(CARGO) test --workspace

lint: ## Check format, lints, documentation and dependencies
	scripts/deps lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps
	scripts/audit

bench: ## Measure the server and the engine, beside the figures of others
	scripts/deps bench
	$(CARGO) build --release --package tidegate --package tidegate-bench
	target/release/tidegate-bench compare
	target/release/tidegate-bench round-trips
	target/release/tidegate-bench pipelines
	target/release/tidegate-bench callers
	target/release/tidegate-bench connections
	target/release/tidegate-bench pipelining --turn 1s
	target/release/tidegate-bench workflow
	target/release/tidegate-bench layout --turn 500ms

gen: ## Make the committed generated files again
	$(CARGO) run --manifest-path proto/Cargo.toml
	$(CARGO) run --package tidegate -- settings --markdown > docs/settings.md.new
	mv docs/settings.md.new docs/settings.md
