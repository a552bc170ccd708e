"""The panels: plain data in by `set_view`, lines of cells out."""
