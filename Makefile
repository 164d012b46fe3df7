# What one does with a clone of Meridian. Every target may be run again at any time.
.PHONY: help build demo test differential mutations fuzz faults lint bench bench-neighbours bench-concurrent bench-parts bench-uploads bench-cluster bench-level1 bench-months bench-columns bench-fields micro-bench

help:
	@echo "make demo    build Meridian, load 482,000 real stars and ask about them"
	@echo "make build   build the program: target/release/meridian"
	@echo "make test    everything that must pass: lint, then unit, property and whole-system tests"
	@echo "make differential   ask random statements and compare with DuckDB: SEED=n COUNT=n MINUTES=n WORLD=n CLUSTER=n TWICE=1 SAVE=DIR"
	@echo "make mutations   read mutated files of every format, and mutated schema files: COUNT=n FIRST=n"
	@echo "make fuzz   give the parsers of what clients send strange inputs: COUNT=n FIRST=n"
	@echo "make faults   kill, suspend and damage workers of a cluster while clients ask: COUNT=n SEED=n"
	@echo "make lint    format, tidiness, dependency rules, clippy"
	@echo "make bench   measure Meridian beside its peers: SIZE=small|standard|large PEERS=duckdb,chdb,... WORK=DIR"
	@echo "make bench-neighbours   measure what joining neighbours costs: SIZE=small|standard WORK=DIR"
	@echo "make bench-concurrent   measure many queries at once beside DuckDB: SIZE=small|standard WORK=DIR"
	@echo "make bench-parts   measure tables of many parts beside the same rows in one: SIZE=small|standard WORK=DIR"
	@echo "make bench-uploads   measure matches of uploaded positions beside STILTS and LSDB, and loads of FITS beside Parquet: SIZE=small|standard WORK=DIR"
	@echo "make bench-cluster   measure what dispatch to workers costs beside a server alone: SIZE=small|standard WORK=DIR"
	@echo "make bench-level1   measure a nightly alert database beside lsst.dax.apdb"
	@echo "make bench-months   count what cold reads of a month of a nightly alert database take, before it is sorted and after: WORK=DIR"
	@echo "make bench-columns   time the lists of the tables and columns of an archive that has 100,000 columns: WORK=DIR"
	@echo "make bench-fields   measure loads of the objects in a field of view beside DuckDB, and matches of new sources: SIZE=small|standard WORK=DIR"
	@echo "make micro-bench   time the hot loops by themselves"

build:
	scripts/setup build
	scripts/release build

demo:
	demo/run

test:
	scripts/test

# The debug program, or that of MERIDIAN_BIN; tests/differential/README.md.
differential:
	scripts/differential $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(if $(MINUTES),--minutes $(MINUTES) --count $(or $(COUNT),1000000000)) $(if $(WORLD),--world $(WORLD)) $(if $(CLUSTER),--workers $(CLUSTER)) $(if $(TWICE),--twice) $(if $(SAVE),--save $(abspath $(SAVE)))

# tests/README.md.
mutations:
	scripts/mutations $(if $(RELEASE),--release) $(or $(COUNT),100000) $(or $(FIRST),0)

# docs/security.md.
fuzz:
	scripts/fuzz $(if $(RELEASE),--release) $(or $(COUNT),100000) $(or $(FIRST),0)

# The debug program, or that of MERIDIAN_BIN; tests/README.md.
faults:
	scripts/faults $(or $(COUNT),200) $(SEED)

lint:
	scripts/lint

# small takes minutes, standard some hours; bench/README.md says what either needs.
SIZE ?= small
PEERS ?=
WORK ?= bench/work
bench: build
	bench/run --size $(SIZE) $(if $(PEERS),--peers $(PEERS)) --meridian $(or $(CARGO_TARGET_DIR),target)/release/meridian --work $(WORK) $(BENCH_OPTIONS)

bench-neighbours: build
	bench/neighbours --size $(SIZE) --meridian $(or $(CARGO_TARGET_DIR),target)/release/meridian --work $(WORK)/neighbours

bench-concurrent: build
	bench/concurrent --size $(SIZE) --meridian $(or $(CARGO_TARGET_DIR),target)/release/meridian --work $(WORK)/concurrent $(BENCH_OPTIONS)

bench-parts: build
	bench/parts --size $(SIZE) --meridian $(or $(CARGO_TARGET_DIR),target)/release/meridian --work $(WORK)/parts

bench-uploads: build
	bench/uploads --size $(SIZE) --meridian $(or $(CARGO_TARGET_DIR),target)/release/meridian --work $(WORK)/uploads

bench-cluster: build
	bench/cluster --size $(SIZE) --meridian $(or $(CARGO_TARGET_DIR),target)/release/meridian --work $(WORK)/cluster

bench-level1: build
	bench/level1 --meridian $(or $(CARGO_TARGET_DIR),target)/release/meridian $(BENCH_OPTIONS)

bench-months: build
	bench/months --meridian $(or $(CARGO_TARGET_DIR),target)/release/meridian --work $(WORK)/months

bench-columns: build
	bench/columns --meridian $(or $(CARGO_TARGET_DIR),target)/release/meridian --work $(WORK)/columns

bench-fields: build
	bench/fields --size $(SIZE) --meridian $(or $(CARGO_TARGET_DIR),target)/release/meridian --work $(WORK)/fields

micro-bench:
	scripts/setup build
	scripts/release bench
