# What can be done with a clone. Everything is built by cargo; these are only the ways in.
.POSIX:
.PHONY: help test test-long bench rates one-core compare profile io500-compare demo install uninstall clean

help:
	@echo "make demo           a file system with 2 MDTs and 4 OSTs: real work on it, a crash, a table of rates, a short io500"
	@echo "make test           every check and test (root and /dev/fuse; under 55 minutes on 2 cores)"
	@echo "make test-long      long tests, for hours rather than minutes; scripts/test-long.sh --list: single steps"
	@echo "make bench          the benchmarks that need no mount, and those of the FUSE transports"
	@echo "make rates          rates of single operations beside ext4's, and where their time goes"
	@echo "make one-core       what looking for work before sleeping does on one processor: docs/results/one-core.md"
	@echo "make compare        every row of docs/performance.md: Sateen beside ext4, null FUSE, GlusterFS and MooseFS"
	@echo "make profile        where processors' time goes in these rows, by perf: docs/results/profile.md"
	@echo "make io500-compare  Sateen, ext4 and GlusterFS in a short io500, and one report of all three"
	@echo "make install        the program, its other names, units, manual pages and completions; PREFIX, DESTDIR"
	@echo "make uninstall      takes them away"
	@echo "make clean          removes what was built"

test:
	@scripts/test.sh

test-long:
	@scripts/test-long.sh

bench:
	@scripts/bench.sh

rates:
	@scripts/rates.sh

one-core:
	@scripts/one-core.sh

compare:
	@scripts/compare.sh

profile:
	@PROFILE=1 scripts/compare.sh

io500-compare:
	@scripts/io500-compare.sh

demo:
	@scripts/demo.sh

# PREFIX is /usr/local and DESTDIR nothing, if nothing else is said.
install:
	cargo build --release -p sateen
	@scripts/install.sh install

uninstall:
	@scripts/install.sh uninstall

clean:
	cargo clean
