"""Published algorithms: a generator for each, one file for each collective.

`algorithm` registers a generator, `find` and `algorithms` return what is registered.
"""

from mpicoll.algorithms.registry import Algorithm, algorithm, algorithms, aliases, find

__all__ = ["Algorithm", "algorithm", "algorithms", "aliases", "find"]
