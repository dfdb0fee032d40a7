# The commands of the project. `make setup` is safe to repeat; everything else runs it first and it costs seconds once done.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := build/.setup
MODULES := build/.modules
FRAMEWORKS := build/frameworks
BROWSER := build/.browser
SITE := build/.site

.PHONY: setup needs build demo test stress faults attacks soak fuzz test-gpu test-qemu test-packages test-vm-install \
        check format generate bench guest-package packages rpm man docs cast clean anew

setup: needs $(STAMP) build

# Of the distribution.
needs:
	@.ci/packages

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --upgrade pip
	@$(BIN)/python -m pip install -q -e '.[dev,libvirt,plot]'
	@.ci/nvcc --install >/dev/null
	@mkdir -p build && touch $(STAMP)

# CuPy and Numba, of which docs/softgpu.md tells: 600 MB that the tests alone want. They have a Python of their own, as Numba puts an import into the start of
# each process, which takes longer than all else in it.
$(FRAMEWORKS): $(STAMP)
	@$(BIN)/python -m venv --without-pip --clear $(FRAMEWORKS)
	@$(BIN)/python -m pip --python $(FRAMEWORKS)/bin/python install -q --group frameworks
	@touch $(FRAMEWORKS)

# Those that tests look at the page of docs/web.md with; where they cannot be had, those tests are skipped and say so.
$(BROWSER): $(STAMP)
	@.ci/packages browser && $(BIN)/python -m pip install -q -e '.[browser]' && touch $(BROWSER) || echo "make: no browser, and its tests are skipped" >&2

# What makes the site of docs/, which nothing else needs.
$(SITE): $(STAMP)
	@$(BIN)/python -m pip install -q -e '.[docs]'
	@touch $(SITE)

# Everything native: the guest library, the software device, the modules that Python loads.
build: $(STAMP) $(MODULES)
	@$(MAKE) -s -C frontend_guest
	@$(MAKE) -s -C softgpu
	@$(BIN)/python -m tests.programs.build >/dev/null
	@$(BIN)/python -m tests.conformance.build >/dev/null
	@$(BIN)/python -m benchmarks.build --untimed >/dev/null
	@$(BIN)/python -m benchmarks.gloop.build >/dev/null
	@$(BIN)/python -m tests.gloop.build
	@$(BIN)/python -m benchmarks.space.build >/dev/null

# What Python loads is compiled whole whenever its builders run: so they run when a source or a flag is another one, or what they made is not theirs.
MODULE_FILES := ivshmem/_ivshmem*.so backend_host/worker/_worker*.so backend_host/channels/*.so
MODULE_SOURCES = $(shell find ivshmem backend_host cuda_api -name '*.[ch]' -o -name build_ffi.py)
MODULE_FLAGS := cc=$(CC) $(CFLAGS) $(LDFLAGS) debug=$(FAIRGV_DEBUG)
$(MODULES): $(STAMP) $(MODULE_SOURCES) $(wildcard $(MODULE_FILES)) \
            $(foreach file,$(MODULE_FILES),$(if $(wildcard $(file)),,anew)) $(if $(subst $(file <$(MODULES)),,$(MODULE_FLAGS)),anew)
	@$(BIN)/python -m ivshmem.build_ffi
	@$(BIN)/python -m backend_host.worker.build_ffi
	@echo '$(MODULE_FLAGS)' >$@

demo: setup
	@$(BIN)/python -m backend_host.demo

# What fails runs once more, alone; tests/gate.py tells what that means. Tests wait for about as long as they compute, so four at a time
# keep two processors busy. Python keeps what it compiles, also where the environment says no: tests start it thousands of times.
test: setup $(FRAMEWORKS) $(BROWSER)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -p tests.gate -q -m 'not gpu and not qemu and not package and not install' -n 4 --dist loadfile --no-loadscope-reorder

# What is about time and processes, again and again beside two busy ones; how often each fails comes last.
TIMES ?= 20
stress: setup
	@$(BIN)/python -m tests.stress --times $(TIMES) $(TESTS)

# Kills, stops and shortages, alone and in pairs; SEED repeats a run, PAIRS=200 kills the daemon with its busiest worker so often, and
# WITHOUT_QEMU=1 has no virtual machine among the victims.
MINUTES ?= 5
faults: setup
	@$(BIN)/python -m tests.endurance.faults --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(PAIRS),--pairs $(PAIRS)) $(if $(WITHOUT_QEMU),--without-qemu)

# Workers that were taken over: what neighbours get beside each attack, without the auditor and with it. MODEL_HOURS=1 instead plays
# an hour of model time, in minutes.
SECONDS_EACH ?= 10
attacks: setup
	@$(BIN)/python -m $(if $(MODEL_HOURS),tests.endurance.attack_model --hours $(MODEL_HOURS),tests.endurance.attacks --seconds $(SECONDS_EACH))

# Clients and vGPUs come and go; whether anything grows: build/soak.png and soak.json.
HOURS ?= 1
soak: setup
	@$(BIN)/python -m tests.endurance.soak --hours $(HOURS)

# Hostile inputs, found by coverage: what each target ran, reached and found comes last.
fuzz: setup
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

# Needs NVIDIA's driver and no package of the VM tests, so it asks for none.
test-gpu: build
	@$(BIN)/python -m pytest -q -m gpu

# Builds QEMU with the patches of qemu_patches, and boots guests with it: a quarter of an hour at most, minutes once it is built.
test-qemu: setup
	@.ci/packages qemu
	@qemu_patches/build
	@$(BIN)/python -m pytest -q -m qemu tests/qemu

# Makes the packages of docs/install.md, looks at what is in them, and starts the host's: minutes. As root, or nothing is started.
test-packages: packages rpm
	@$(BIN)/python -m pytest -q -m package tests/packaging

# A fresh Debian, emulated, with a systemd of its own: the host's package is installed there, serves, is restarted, killed and upgraded under
# programs. piuparts then looks at what both packages leave. As root; an hour, most of it an emulated processor's.
test-vm-install: packages
	@.ci/packages install
	@$(BIN)/python -m pytest -q -m install tests/vm_install

# The quick subset, five minutes at most; the whole is for a GPU: fairgv-bench suite full-1, then full-2.
DEVICE ?= auto
bench: build
	@$(BIN)/python -m benchmarks.cli suite quick --device $(DEVICE)

# What is installed in a virtual machine: a .deb and a tar file in build/package.
guest-package:
	@$(MAKE) -s -C frontend_guest
	@frontend_guest/package/build build/guest build/package

# The .deb of hosts and that of guests, for the distribution that this runs on: build/packages.
packages: setup
	@.ci/packages deb
	@frontend_guest/package/build build/guest build/packages
	@$(BIN)/python packaging/build.py deb build/packages

# The host's, for distributions that have rpm: made on the one that it is for.
rpm: setup
	@.ci/packages rpm
	@$(BIN)/python packaging/build.py rpm build/packages

# Manual pages, completions and a configuration, made from the commands' parsers: build/man, build/completions and build/config.toml.
man: build
	@$(BIN)/python -m manual build

# The pages as a site, for reading without a network, too: build/site/index.html. Broken links end it. The variable leaves out a notice: the theme
# gets fixes until May 2027, and its successor, Zensical, reads the same mkdocs.yml.
docs: build $(SITE)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

# The recording of `make demo` in docs/start.md. asciinema keeps a number of its own in the folder of its configuration.
cast: build $(SITE)
	@ASCIINEMA_CONFIG_HOME=build/asciinema SHELL=/bin/sh TERM=xterm-256color $(BIN)/asciinema rec -q --overwrite --cols 80 --rows 30 -t 'make demo' \
	  -c "echo '$$ make demo'; $(BIN)/python -m backend_host.demo" docs/pictures/demo.cast

# C that is written by hand; what is generated is formatted by its generator.
C_FILES = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' | grep -v -e generated/ -e cuda_api/prototypes.h -e cuda_api/wire.h \
                  -e cuda_api/driver.h -e cuda_api/values.h -e cuda_api/variants.h)

check: setup
	@$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@$(BIN)/python -m cuda_api.generate --check
	@$(BIN)/python -m backend_host.generate --check
	@$(BIN)/python -m dashboards.generate --check
	@$(BIN)/python -m benchmarks.results --check
	@$(BIN)/python -m pytest -q tests/test_layering.py

format:
	@$(BIN)/clang-format -i $(C_FILES)
	@$(BIN)/ruff format -q .
	@$(BIN)/ruff check -q --fix .

generate:
	@$(BIN)/python -m cuda_api.generate
	@$(BIN)/python -m backend_host.generate
	@$(BIN)/python -m dashboards.generate
	@$(BIN)/python -m benchmarks.pictures
	@$(BIN)/python -m benchmarks.results

clean:
	rm -rf build
	find . -name '*.so' -not -path './$(VENV)/*' -delete
