"""Files for other tools, made of the stream of records: one pass, one record in memory at a time.

Every export is a class that is fed each record (`Export`), and a function `write_X(info, iterations, out, **options)`
around it. `run_exports` makes several files in one pass.
"""
