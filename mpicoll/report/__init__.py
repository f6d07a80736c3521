"""A page, or figures for a paper, from the records of the benchmark and of `mpicoll.p2p`.

``python -m mpicoll.report FILES -o report.html`` needs neither MPI nor torch: `loading` reads the
records, `setups` keeps apart what was measured under different conditions, `curves`, `winners`,
`against` and `notices` say what follows from them, and `page` and `figures` only show it.
"""
