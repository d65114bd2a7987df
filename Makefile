# Every target works from a clean clone on a machine with Rust and make. Tests and demo run on
# private servers; none reads where the environment says that somebody's data is.

CARGO ?= cargo
TARGET := $(or $(shell $(CARGO) metadata --no-deps --offline --format-version 1 2>/dev/null | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'),$(CARGO_TARGET_DIR),target)

unexport DATABASE_URL REDIS_URL MUTATION CRASH_POINT $(filter PG%,$(.VARIABLES))
unexport $(filter LANEKEEPER_%,$(.VARIABLES))
# Where recorded payloads are: for the tests alone, to the program it would be an unknown setting.
SHARED := $(if $(LANEKEEPER_SHARED),env LANEKEEPER_SHARED='$(LANEKEEPER_SHARED)')

# nextest runs each test in a process of its own and is not asked for.
# The places where tests have a worker end or do wrong; a release is built without.
FEATURES := --features crash-points
TESTS := $(if $(shell $(CARGO) nextest --version 2>/dev/null),nextest run,test) --workspace --all-targets $(FEATURES)

MATRIX_TESTS := $(if $(findstring nextest,$(TESTS)),nextest run,test) $(FEATURES) --test it --test crash

# What reads or compares times of the server.
HOURS_TESTS := nextest run $(FEATURES) --test it
HOURS_ONLY := test(/^(housekeeping|statements|upgrade|engine::(appending|acknowledging|closing|pausing|requeue|waking)|cli::status|hooks::spool)::/)

.DEFAULT_GOAL := help
.PHONY: help build package test matrix hours lint deploy deny docs crash rolling demo demo-chat bench model fmt clean mutations sim clis api

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build for use: target/release/lanekeeper
	$(CARGO) build --release --locked

package: build ## A Debian package of the release build, in target/package
	scripts/package-deb.sh '$(TARGET)/release/lanekeeper' '$(TARGET)/package'

test: lint deploy deny ## Everything that CI checks
	BROWSER_TOOLS='$(TARGET)/browser-tools' PROTOCOL_TOOLS='$(TARGET)/protocol-tools' \
		DURABLE_TOOLS='$(TARGET)/durable-tools' API_TOOLS='$(TARGET)/api-tools' \
		scripts/install-requirements.sh pgbouncer redis faketime node tmux python browser protocols durable api
	$(CARGO) build --locked $(FEATURES) --bins --examples
	$(TARGET)/debug/lanekeeper dev --ephemeral --no-migrate -- scripts/on-test-server.sh $(SHARED) $(CARGO) $(TESTS) --locked
	$(CARGO) test --doc --workspace --locked $(FEATURES)

matrix: ## Integration tests and a selection of faults on PostgreSQL 14 to 18; MATRIX="14 18" chooses, ONLY=expression as of nextest -E
	scripts/install-requirements.sh pgbouncer redis faketime node tmux python
	$(CARGO) build --locked $(FEATURES) --bins --examples
	MATRIX='$(MATRIX)' PROGRAM='$(TARGET)/debug/lanekeeper' \
		TESTS='$(CARGO) $(MATRIX_TESTS) --locked $(if $(ONLY),-E $(ONLY))' scripts/matrix.sh

hours: ## Tests that depend on the time of day, on servers whose clock crosses midnight, a month, a year, 29 February; HOURS=2027-04-30T23:58:00
	scripts/install-requirements.sh postgres
	$(CARGO) build --locked $(FEATURES)
	HOURS='$(HOURS)' MAJOR='$(MAJOR)' PROGRAM='$(TARGET)/debug/lanekeeper' \
		TESTS='$(CARGO) $(HOURS_TESTS) --locked -E $(or $(ONLY),$(HOURS_ONLY))' scripts/hours.sh

lint: ## Formatting, lints, shell syntax, no circles between modules
	scripts/install-requirements.sh postgres rustfmt clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked $(FEATURES) -- -D warnings
	for script in scripts/*.sh src/dev/*.sh; do sh -n "$$script" || exit 1; done
	bash -n .ci/run
	CARGO='$(CARGO)' python3 scripts/structure.py --brief

deploy: ## Check chart, manifests, alert rules, Dockerfile and compose file
	DEPLOY_TOOLS='$(TARGET)/deploy-tools' scripts/install-requirements.sh deploy
	DEPLOY_TOOLS='$(TARGET)/deploy-tools' scripts/check-deploy.sh

deny: ## Check licences, sources, second versions and advisories of the dependencies, by deny.toml
	DENY_TOOLS='$(TARGET)/deny-tools' scripts/install-requirements.sh deny
	CARGO='$(CARGO)' DENY_TOOLS='$(TARGET)/deny-tools' scripts/check-dependencies.sh

docs: ## Make the pages of docs/reference from the code; `make test` compares them
	scripts/install-requirements.sh postgres
	$(CARGO) build --locked $(FEATURES)
	$(TARGET)/debug/lanekeeper dev --ephemeral --no-migrate -- scripts/on-test-server.sh \
		env UPDATE_DOCS=1 $(CARGO) test --locked $(FEATURES) --test it reference::

crash: ## Real processes under seeded faults: SEEDS=17 or 1-1000, MINUTES=30, JOBS=2; prints one JSON summary
	scripts/install-requirements.sh postgres redis faketime
	CARGO='$(CARGO)' SEEDS='$(SEEDS)' MINUTES='$(MINUTES)' JOBS='$(JOBS)' scripts/crash.sh

rolling: ## A rolling restart at full load from an earlier commit's workers and schema: PREVIOUS=REF
	scripts/install-requirements.sh postgres
	scripts/rolling.sh '$(PREVIOUS)'

mutations: ## Break every invariant in the code, and see its test fail; MUTATIONS="NoPolls NoBound" chooses
	scripts/install-requirements.sh postgres redis
	$(CARGO) build --locked $(FEATURES)
	$(TARGET)/debug/lanekeeper dev --ephemeral --no-migrate -- scripts/on-test-server.sh \
		$(if $(MUTATIONS),env MUTATIONS='$(MUTATIONS)') $(CARGO) test --locked $(FEATURES) --test it -- \
		--ignored --exact --nocapture mutations::run::each_mutation_makes_its_test_fail

sim: ## Generated lists of operations against a model, on a server whose clock stands still: CASES=2000
	scripts/install-requirements.sh postgres
	$(CARGO) build --locked $(FEATURES)
	SIM_CASES='$(or $(CASES),2000)' $(TARGET)/debug/lanekeeper dev --ephemeral --no-migrate -- scripts/on-test-server.sh \
		$(CARGO) test --locked $(FEATURES) --test sim -- --exact --nocapture generated::lists_of_operations_do_what_the_model_says

clis: ## Real agent CLIs from npm, headless against a scripted model without a network: CLIS="claude codex" chooses; Linux, 1.2 GB
	scripts/install-requirements.sh postgres
	$(CARGO) build --locked
	scripts/clis.sh '$(TARGET)/debug/lanekeeper' '$(TARGET)/clis' $(CLIS)

api: ## The HTTP API under generated requests: EXAMPLES=200 for each operation and phase, SEED=5
	API_TOOLS='$(TARGET)/api-tools' scripts/install-requirements.sh postgres api
	$(CARGO) build --locked $(FEATURES)
	$(TARGET)/debug/lanekeeper dev --ephemeral --no-migrate -- scripts/on-test-server.sh \
		env API_EXAMPLES='$(or $(EXAMPLES),100)' API_SEED='$(or $(SEED),17)' \
		$(CARGO) test --locked $(FEATURES) --test it -- --exact --nocapture \
		api::fuzz::generated_requests_find_no_failure_and_no_answer_that_is_not_in_the_document

demo: ## The main job from end to end; KEEP=1 leaves it running, INPUT=folder feeds other recordings, FAIL_EVERY=N
	scripts/install-requirements.sh postgres redis
	@$(MAKE) --no-print-directory build
	@$(TARGET)/release/lanekeeper demo $(if $(INPUT),--input '$(INPUT)') $(if $(FAIL_EVERY),--fail-every '$(FAIL_EVERY)') $(if $(filter-out 0,$(KEEP)),--keep)

demo-chat: ## A person in a chat talks to an agent in a terminal and back: a fake Telegram, a real tmux
	scripts/install-requirements.sh postgres tmux python
	@$(MAKE) --no-print-directory build
	@LANEKEEPER='$(abspath $(TARGET))/release/lanekeeper' $(TARGET)/release/lanekeeper dev --ephemeral -- sh examples/chat/run.sh

bench: build ## Measure this machine, on private servers with fsync on: WORKLOADS="drain steady", RUNS=5, BENCH_OUT=docs/bench
	scripts/install-requirements.sh postgres
	WORKLOADS='$(WORKLOADS)' RUNS='$(RUNS)' BENCH_OUT='$(or $(BENCH_OUT),$(TARGET)/bench)' \
		scripts/bench.sh '$(TARGET)/release/lanekeeper'

model: ## Check the model of the protocol: more of it than `make test` does, 4 GB at the most
	$(CARGO) run --release --locked --package lanekeeper-model

fmt: ## Format the source
	$(CARGO) fmt --all

clean: ## Remove what was built
	$(CARGO) clean
