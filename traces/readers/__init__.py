"""One file format a file; `registry` finds the reader by content."""
