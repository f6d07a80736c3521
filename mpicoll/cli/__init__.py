"""The parts that all commands share: one click style, exit statuses, options, a watchdog.

A command is a module (``__main__.py``, or ``command.py`` beside it where two packages start it)
that declares its arguments by decorators and returns its exit status::

    @click.command(cls=Command, help=__doc__)
    @click.argument("files", nargs=-1, required=True, type=FILE)
    @option("--margin", type=Real(0, 1000), default=3.0, shown=True, help="Per cent.")
    def main(files: Sequence[Path], margin: float) -> int:
        '''Print the comparison; return the exit status.'''

    if __name__ == "__main__":
        main()

An `ArgumentError` that it raises is printed as ``Error: ...``, and the exit status is 2. A command
that runs on every rank is of class `RanksCommand`: every rank parses the command line and comes to
the same result, and only rank 0 prints help and errors. It is given the backends as click's `obj`::

    @click.command(cls=RanksCommand, help=_HELP)
    @backends
    @timeout
    @click.pass_obj
    def main(makers: Worlds, /, **given: Any) -> int:
        '''Form the groups (`form_worlds`), measure, and print on rank 0.'''

    if __name__ == "__main__":
        main(obj=ALL_BACKENDS)

`command` has the classes, `common` the options of all commands, `options` those of several.
`commands` puts all commands under one name. `progress` shows the progress of a long command, and
`verbosity` is the level that -q and -v set. `ending` prints
why a run failed, `streams` keeps standard output and error usable, and `watchdog` ends a step that
hangs. The groups of the backends are formed by `mpicoll.measurement.worlds`.
"""
