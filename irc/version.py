"""The release, which artefacts and generated files name."""

VERSION = "0.1.0"
