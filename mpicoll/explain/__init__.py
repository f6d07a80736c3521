"""See a schedule move: in the terminal, as a diagram, as a page that plays it.

``python -m mpicoll.explain allreduce ring recursive_doubling --ranks 8 -o allreduce.html``
"""
