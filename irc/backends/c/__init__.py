"""Loop IR to C11."""
