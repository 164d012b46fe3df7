# What one does with a clone of Meridian. Every target may be run again at any time.
.PHONY: help build demo test lint bench

help:
	@echo "make demo    build Meridian, load 482,000 real stars and ask about them"
	@echo "make build   build the program: target/release/meridian"
	@echo "make test    everything that must pass: lint, then unit, property and whole-system tests"
	@echo "make lint    format, tidiness, dependency rules, clippy"
	@echo "make bench   benchmarks"

build:
	scripts/setup build
	cargo build --release --locked -p meridian

demo:
	demo/run

test:
	scripts/test

lint:
	scripts/lint

bench:
	@echo "There are no benchmarks to run yet; bench/make_benchmark_catalogue.py writes the catalogue that they will use."
