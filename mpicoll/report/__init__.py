"""A page, or figures for a paper, from the records of the benchmark and of `mpicoll.p2p`.

``python -m mpicoll.report FILES -o report.html`` needs neither MPI nor torch. `loading` reads the
records, `setups` groups the runs by their conditions, `curves`, `winners`, `model_comparison` and
`notices` evaluate them, and `page` and `figures` show the results.
"""
