"""A program that prints what it sees of its interpreter and its process, as JSON.

The first argument is the communication that it makes before: ``none``, ``mpi`` or ``torch``.
"""
# ruff: noqa: E402 - what is imported below is not yet there when the program looks

import sys

MODULES = sorted(sys.modules)
NAMES = list(globals())
STACK = sys._getframe()

import atexit
import builtins
import copyreg
import faulthandler
import gc
import json
import locale
import logging
import os
import resource
import signal
import threading
import tracemalloc
import warnings

WATCHED = ("stdin", "stdout", "stderr")


def kind_of(value):
    """Return the class of a value, with its module."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def depth(frame):
    """Return how many frames there are."""
    return 0 if frame is None else 1 + depth(frame.f_back)


def of_main():
    spec, loader = __spec__, __loader__
    main = sys.modules["__main__"]
    return {
        "names": [name for name in NAMES if name != "__annotations__"],
        "annotations": globals().get("__annotations__"),
        "file": globals().get("__file__"),
        "cached": globals().get("__cached__", "none"),
        "name": [__name__, __package__, __doc__],
        "builtins": __builtins__ is builtins,
        "spec": spec and [spec.name, spec.origin, spec.parent, spec.cached, spec.has_location],
        "loader": [
            str(loader) if isinstance(loader, type) else kind_of(loader),
            getattr(loader, "path", None),
            getattr(loader, "archive", None),
        ],
        "is module": vars(main) is globals(),
        "stack": depth(STACK),
    }


def of_sys():
    hooks = ("excepthook", "displayhook", "unraisablehook", "breakpointhook")
    return {
        "argv": sys.argv,
        "path": sys.path,
        "flags": repr(sys.flags),
        "orig_argv": sys.orig_argv,
        "options": [sys._xoptions, sys.warnoptions],
        "bytecode": [sys.dont_write_bytecode, sys.pycache_prefix],
        "hooks": [getattr(sys, name) is getattr(sys, f"__{name}__") for name in hooks],
        "traces": [str(sys.gettrace()), str(sys.getprofile()), tracemalloc.is_tracing()],
        "limits": [
            sys.getrecursionlimit(),
            sys.getswitchinterval(),
            sys.getdlopenflags(),
            sys.get_int_max_str_digits(),
            sys.get_coroutine_origin_tracking_depth(),
            str(sys.get_asyncgen_hooks()),
        ],
        "attributes": [
            name for name in vars(sys) if name.startswith(("last_", "tracebackl", "ps"))
        ],
        "streams": [
            [
                kind_of(stream),
                stream is getattr(sys, f"__{name}__"),
                stream.encoding,
                stream.errors,
                stream.line_buffering,
                stream.write_through,
            ]
            for name in WATCHED
            for stream in [getattr(sys, name)]
        ],
        "finders": [
            kind_of(finder) if not isinstance(finder, type) else finder.__name__
            for finder in sys.meta_path
        ],
        "path hooks": [str(hook).partition(" at ")[0] for hook in sys.path_hooks],
        "error": str(sys.exc_info()),
        "modules": MODULES,
    }


def of_process():
    folder = "/proc/self/fd"
    links = [
        os.readlink(f"{folder}/{name}")
        for name in os.listdir(folder)
        if os.path.islink(f"{folder}/{name}")
    ]
    return {
        "descriptors": sorted(
            link.partition(":[")[0]
            for link in links
            if not link.startswith(("/proc", "/dev/shm", "/tmp"))
        ),
        "threads": [[thread.name, thread.daemon] for thread in threading.enumerate()],
        "system threads": len(os.listdir("/proc/self/task")),
        "thread hooks": [
            threading.excepthook is threading.__excepthook__,
            str(threading._profile_hook),
            str(threading._trace_hook),
        ],
        "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "signal mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "wakeup": signal.set_wakeup_fd(-1),
        "timers": [signal.getitimer(timer)[0] for timer in (0, 1, 2)],
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if not name.startswith(("PMI", "HYDI", "HYDRA"))
        },
        "folder": os.getcwd(),
        "mask": os.umask(0o22),
        "cores": sorted(os.sched_getaffinity(0)),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "limits": [resource.getrlimit(kind) for kind in range(10)],
        "children": open("/proc/thread-self/children").read(),
    }


def of_library():
    names = ("error", "always", "default", "ignore", "once", "module")
    return {
        "warnings": [[str(item) for item in entry] for entry in warnings.filters],
        "shown": [warnings.showwarning.__module__, warnings.formatwarning.__module__],
        "once": [str(key) for key in getattr(warnings, "onceregistry", {}) if key in names],
        "logging": [
            str(logging.root.handlers),
            logging.root.level,
            logging.raiseExceptions,
            logging.getLoggerClass().__module__,
            logging.getLogRecordFactory().__module__,
        ],
        "loggers": sorted(logging.root.manager.loggerDict),
        "gc": [
            gc.isenabled(),
            gc.get_threshold(),
            gc.get_freeze_count(),
            gc.get_debug(),
            len(gc.callbacks),
        ],
        "faults": faulthandler.is_enabled(),
        "locale": [locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(False)],
        "at exit": atexit._ncallbacks(),
        "at exit of threads": len(getattr(threading, "_threading_atexits", [])),
        "copied": sorted(
            f"{kind.__module__}.{kind.__qualname__}" for kind in copyreg.dispatch_table
        ),
        "builtins": {
            name: str(value).partition(" at ")[0]
            for name, value in vars(builtins).items()
            if name not in ("_", "copyright")
        },
    }


def communicate_by_mpi():
    import numpy as np
    from mpi4py import MPI

    comm, x = MPI.COMM_WORLD, np.ones(4)
    random = np.random.RandomState(0)
    np.random.seed(7)
    for _ in range(40):
        comm.Allreduce(x, np.empty(4))
        comm.allgather({"a": 1, "b": "text"})
        comm.bcast(random, 0)
        comm.Bcast(x)
    return comm.rank, lambda: {
        "random": str(np.random.get_state()[2]), "errors": np.geterr(),
        "printing": str(np.get_printoptions()), "ufuncs": np.add.__module__,
        "rc": {name: str(value) for name, value in vars(sys.modules["mpi4py"].rc).items()
               if not name.startswith("__")},
        "level": MPI.Query_thread(), "handler": comm.Get_errhandler() == MPI.ERRORS_RETURN,
        "name": comm.name,
    }  # fmt: skip


def communicate_by_torch():
    import torch
    import torch.distributed as dist

    torch.manual_seed(7)
    dist.init_process_group("gloo")
    for _ in range(40):
        dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.ones(4), 0)
        dist.all_gather_object([None] * dist.get_world_size(), {"a": 1})
    return dist.get_rank(), lambda: {
        "random": torch.initial_seed(), "state": torch.get_rng_state().sum().item(),
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "default": [str(torch.get_default_dtype()), str(torch.get_default_device())],
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "backend": dist.get_backend(), "debug": str(dist.get_debug_level()),
    }  # fmt: skip


def main(kind):
    rank, of_communication = 0, dict
    if kind != "none":
        rank, of_communication = {
            "mpi": communicate_by_mpi, "torch": communicate_by_torch,
        }[kind]()  # fmt: skip
    parts = {"main": of_main(), "sys": of_sys(), "process": of_process(),
             "library": of_library(), "communication": of_communication()}  # fmt: skip
    state = {f"{part}: {name}": value for part, values in parts.items()
             for name, value in values.items()}  # fmt: skip
    if rank == 0:
        print(json.dumps(state))
    if kind == "torch":
        import torch.distributed as dist

        dist.destroy_process_group()


main((*sys.argv[1:], "none")[0])
