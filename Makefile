# Each target makes its own virtual environment from what pyproject.toml names.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# bytecode is kept, so that not every process of a test compiles all modules
unexport PYTHONDONTWRITEBYTECODE
WARM := $(BIN)/python -c "from migrator.planning.planners import Charge, ready; from migrator.simulation import tenant; \
	[ready(charge) for charge in Charge]; tenant.ready()"

.PHONY: demo test check format bench results reproduce package newest clean

demo: $(STAMP)
	@mkdir -p out
	$(BIN)/migrator example > out/window.yaml
	$(BIN)/migrator plan out/window.yaml --figure out/plan.html
	$(BIN)/migrator plan out/window.yaml --charge survivors --figure out/plan-survivors.png
	$(BIN)/migrator example quickstart > out/quickstart.yaml
	$(BIN)/migrator simulate out/quickstart.yaml --policy migrator,ekya --windows 2 --report out/run.html
	$(BIN)/python examples/live_demo.py out
	@echo "Open out/plan.html, out/plan-survivors.png, out/run.html and out/live.html."

# Four workers for two cores, because tests of daemons and clusters wait for other processes.
test: $(STAMP)
	$(BIN)/python -m pytest -n 4 --dist loadfile

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layers.py tests/test_private_names.py tests/test_docstring_references.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python -m benchmarks.planner --out docs/results

# Every page of docs/results whose rows are older than their code; goes on where it was interrupted.
results: $(STAMP)
	$(BIN)/python -m benchmarks.results --run

reproduce: $(STAMP)
	@mkdir -p out
	$(BIN)/migrator reproduce all --out out/reproduce.html

# Wheel and sdist, and the wheel in an environment of its own, without a compiler.
package: $(STAMP)
	rm -rf out/package
	$(BIN)/python -m hatchling build -d out/package/dist
	$(PYTHON) -m venv out/package/venv
	out/package/venv/bin/pip install --quiet --disable-pip-version-check -c constraints-dev.txt out/package/dist/*.whl
	cd out/package && venv/bin/migrator example > window.yaml && CC=false venv/bin/migrator plan window.yaml

# The newest libraries, as `pip install` gives them to users: with CUDA, several GB. A retraining
# must write nothing to standard error, neither while it runs nor when Python exits.
newest:
	rm -rf out/newest
	$(PYTHON) -m venv out/newest
	out/newest/bin/pip install --quiet --disable-pip-version-check '.[serve]'
	out/newest/bin/migrator retrain nc-synthetic --model small-cnn --windows 1 2> out/newest/errors
	@cat out/newest/errors; test ! -s out/newest/errors

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(STAMP): pyproject.toml constraints-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints-dev.txt -e '.[dev]'
	@echo "Compiling the planner's kernels (once)..."
	$(WARM)
	@touch $@
