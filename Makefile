PYTHON ?= python3

.PHONY: install test full lint types docs all

install:
	$(PYTHON) -m pip install -e ".[test,dev]"

test:
	$(PYTHON) -m pytest -n auto --dist worksteal

full:
	$(PYTHON) -m pytest -m full

lint:
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m pyright

docs:
	$(PYTHON) scripts/generate_docs.py

all: lint types docs test
