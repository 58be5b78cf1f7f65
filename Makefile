# make demo: the built-in cohort from nothing to its report.  make check: style, types, layers.
# make test: the tests, but for those that take long.  make long: those.  make nightly: all, with simulations, and the coverage.
# make same BASE=<commit>: whether that commit and this tree give the same numbers.
# make cluster: a study on a real SLURM and on Dask's workers, all of this machine; installs SLURM from Debian's packages, as root.
# make browser: Chromium from Debian's packages, as root, without which the tests that open pages are skipped.
# make pacs: Orthanc, dcmtk and dicom3tools, likewise, without which tests of DICOM objects in an archive are skipped.
# make validator: roc-validator in .validator, an environment of its own because it needs an older rich than ours; without it the
# tests that validate RO-Crates are skipped.
# make wheelhouse: every wheel that an installation needs, with hashes.  make sbom: what that installs, with licences, in sbom.json.
# make roots: mmdebstrap from Debian's packages, as root, without which the containers' steps are not tried.
# make docs: the documentation, docs/_build/html/index.html.  make pictures: its pictures, after make demo.
TORCH ?= torch==2.13.0 # a GPU user gives another build, e.g. make demo TORCH='torch==2.13.0 --index-url …'
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test long nightly cluster browser pacs validator roots same check docs pictures wheelhouse sbom clean

demo: .venv/ready
	$(BIN)/python pipelines/demo.py

# two files at a time, in conftest's order
PYTEST = OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test: .venv/ready
	$(PYTEST) -m 'not slow and not long'

long: .venv/ready
	$(PYTEST) -m 'long and not slow'

nightly: .venv/ready
	$(PYTEST) -m '' --hypothesis-profile=nightly --cov --cov-report=
	@echo "tests run $$($(BIN)/coverage report --format=total) % of the package's statements"

cluster: .venv/ready
	command -v slurmctld slurmd munged sbatch || apt-get install --yes --no-install-recommends slurmctld slurmd slurm-client munge
	$(BIN)/pytest -m slow -s tests/cluster

browser:
	command -v chromium || (apt-get update --quiet && apt-get install --yes --no-install-recommends chromium)

validator: .validator/ready

.validator/ready: tests/made/roc_validator.txt .venv/ready
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .validator
	VIRTUAL_ENV=.validator $(BIN)/uv pip install --quiet --requirement tests/made/roc_validator.txt
	touch $@

PACS = orthanc orthanc-dicomweb dcmtk dicom3tools
pacs:
	(command -v Orthanc && command -v dsrdump && command -v dciodvfy) || (apt-get update --quiet && apt-get install --yes --no-install-recommends $(PACS))

roots:
	command -v mmdebstrap || (apt-get update --quiet && apt-get install --yes --no-install-recommends mmdebstrap)

BASE ?= HEAD
same: .venv/ready
	$(BIN)/python tests/same/compare.py $(BASE)

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: .venv/ready
	$(BIN)/python -m sphinx --fresh-env --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo docs/_build/html/index.html

pictures: .venv/ready
	$(BIN)/python pipelines/pictures.py
	$(BIN)/python pipelines/notebooks.py

wheelhouse: .venv/ready
	$(BIN)/python pipelines/wheelhouse.py "$(strip $(TORCH))"

sbom: wheelhouse
	$(BIN)/python pipelines/sbom.py

# torch first and by pip, so that no other package pulls another build of it; the rest by uv, which is quick, and compiled
# as pip does it: where Python may write no bytecode, every process would compile all that it imports
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --compile-bytecode --constraint constraints.txt --editable '.[brain,cluster,dicom,docs,excel,onnx,radiomics,serve,test]'
	touch $@

clean:
	rm -rf .venv .validator runs docs/_build docs/_made wheelhouse sbom.json
