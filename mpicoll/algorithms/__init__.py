"""Published algorithms: a generator for each, one file for each collective.

`algorithm` registers a generator, `find` and `algorithms` return what is registered. `even` and
`power_of_two` restrict the numbers of ranks: ``algorithm("allreduce", needs=even)``.
"""

from mpicoll.algorithms.registry import (
    Algorithm,
    algorithm,
    algorithms,
    aliases,
    even,
    find,
    power_of_two,
)

__all__ = ["Algorithm", "algorithm", "algorithms", "aliases", "even", "find", "power_of_two"]
