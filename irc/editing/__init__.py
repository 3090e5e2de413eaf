"""Changes of whole models before they are written: parts of them, other input shapes, less of the same."""
