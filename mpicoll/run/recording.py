"""Record how long a program's calls of MPI or torch take, by the line that makes them.

`mpicoll.run.comparing` has Python run this before the program, with and without mpicoll. A program
without mpicoll must start as fast as by itself, so this module imports no other one of mpicoll.
Each rank writes its times as JSON when it ends.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import Any

_BLOCKING = (
    "Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv",
    "Alltoall", "Alltoallv", "Alltoallw", "Reduce", "Allreduce", "Reduce_scatter_block",
    "Reduce_scatter", "Scan", "Exscan",
)  # fmt: skip
_OBJECTS = (
    "barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan",
    "exscan",
)  # fmt: skip
_NEIGHBOURS = (
    "Neighbor_allgather", "Neighbor_allgatherv", "Neighbor_alltoall", "Neighbor_alltoallv",
    "Neighbor_alltoallw",
)  # fmt: skip
_COLLECTIVES = {
    *_BLOCKING, *_OBJECTS, *_NEIGHBOURS, *(f"I{name.lower()}" for name in _BLOCKING + _NEIGHBOURS),
    "neighbor_allgather", "neighbor_alltoall",
}  # fmt: skip
_MESSAGES = {
    *("Send", "Recv", "Sendrecv", "Sendrecv_replace", "Isend", "Irecv", "Isendrecv", "Probe"),
    *("Isendrecv_replace", "Iprobe", "Mprobe", "Improbe", "Bsend", "Ssend", "Rsend", "Ibsend"),
    *("Issend", "Irsend", "send", "bsend", "ssend", "recv", "sendrecv", "isend", "ibsend"),
    *("issend", "irecv", "probe", "iprobe", "mprobe", "improbe"),
}
_WAITS = {
    *("Wait", "Waitany", "Waitall", "Waitsome", "Test", "Testany", "Testall", "Testsome", "Start"),
    *("wait", "waitany", "waitall", "waitsome", "test", "testany", "testall", "testsome"),
    "Startall",
}
_WINDOWS = {
    *("Put", "Get", "Accumulate", "Get_accumulate", "Fetch_and_op", "Compare_and_swap", "Fence"),
    *("Start", "Complete", "Post", "Wait", "Lock", "Unlock", "Lock_all", "Unlock_all", "Flush"),
    *("Flush_all", "Flush_local", "Flush_local_all"),
}
_OF_MPI = {
    "Comm": _COLLECTIVES | _MESSAGES, "Intracomm": _COLLECTIVES, "Topocomm": _COLLECTIVES,
    "Request": _WAITS, "Prequest": _WAITS, "Message": {"Recv", "Irecv", "recv", "irecv"},
    "Win": _WINDOWS,
}  # fmt: skip
"""The recorded methods of each class of mpi4py."""
_OF_TORCH = {
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "allgather_coalesced",
    "all_gather_single", "all_gather_single_coalesced", "_allgather_base", "gather", "scatter",
    "allgather_into_tensor_coalesced", "reduce_scatter", "reduce_scatter_single", "barrier",
    "reduce_scatter_single_coalesced", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced",
    "alltoall", "alltoall_base", "all_to_all_single",
}  # fmt: skip
"""The collectives of torch's process groups."""
_MESSAGES_OF_TORCH = {"send", "recv", "recv_anysource"}


def start(folder: str, *, only_messages: bool = False) -> None:
    """Record this process from the import of MPI or torch on; write a file there at its end.

    Args:
        only_messages: record messages, waits and windows, for a trace, which has the collectives.
    """
    spec = spec_from_loader(
        "mpicoll.run._call_times",
        ExtensionFileLoader("mpicoll.run._call_times", _extension_path("_call_times")),
    )
    assert spec is not None
    recorder = Recorder(folder, spec, only_messages=only_messages)
    sys.meta_path.insert(0, _Finder(recorder))


def _extension_path(name: str) -> str:
    """Return the path of an extension in this folder."""
    from importlib.machinery import EXTENSION_SUFFIXES

    stem = os.path.join(os.path.dirname(__file__), name)
    paths = [stem + suffix for suffix in EXTENSION_SUFFIXES]
    return next(filter(os.path.exists, paths), paths[0])


class Recorder:
    """Replaces methods of MPI and torch by recorded ones, and writes their times.

    Args:
        folder: of the files.
        spec: of the extension, which is loaded with the first recorded module.
        only_messages: as in `start`.
    """

    def __init__(self, folder: str, spec: ModuleSpec, *, only_messages: bool) -> None:
        self.folder, self.spec, self.process = folder, spec, os.getpid()
        self.only_messages = only_messages
        self.times: Any = None
        self.is_open = False
        self.modules: dict[str, Callable[[Any], None]] = {
            "mpi4py.MPI": self._record_mpi,
            "mpicoll.mpi.communicator.recording": self._record_requests,
            "torch.distributed.distributed_c10d": self._record_torch,
        }
        if not only_messages:
            self.modules |= {
                "mpicoll.mpi.communicator.classes": self._record_drop_in,
                "torchcoll.backend.group": self._record_groups,
                "torchcoll.backend.works": self._record_works,
            }
        atexit.register(self._write)

    def record(self, module: ModuleType) -> None:
        """Replace the methods of a module that has been imported."""
        if self.times is None:
            self.times = module_from_spec(self.spec)
            assert self.spec.loader is not None
            self.spec.loader.exec_module(self.times)
            self.times.set_own_folder(os.path.join(os.path.dirname(os.path.dirname(__file__)), ""))
        self.modules[module.__name__](module)

    def _replace(
        self, kind: type, names: Iterable[str], collectives: Iterable[str], *, is_library: bool
    ) -> None:
        """Replace those of the methods that a class itself has.

        Args:
            collectives: those that are counted.
        """
        for name in names:
            method = vars(kind).get(name)
            if method is None:
                continue
            is_of_class = isinstance(method, classmethod)
            function = method.__func__ if is_of_class else method
            recorded = self.times.Recorded(function, name, is_library, name in collectives)
            self.times.set_attribute(kind, name, classmethod(recorded) if is_of_class else recorded)

    def _record_mpi(self, module: Any) -> None:
        for kind, names in _OF_MPI.items():
            recorded = names - _COLLECTIVES if self.only_messages else names
            self._replace(getattr(module, kind), recorded, _COLLECTIVES, is_library=True)

    def _record_drop_in(self, module: Any) -> None:
        self._replace(module.Comm, _COLLECTIVES, _COLLECTIVES, is_library=False)

    def _record_requests(self, module: Any) -> None:
        # Nonblocking collectives return these; what mpicoll calls inside is no call of the program.
        self._replace(module.RecordedRequest, ("Wait",), (), is_library=True)

    def _record_torch(self, module: Any) -> None:
        # `torch.distributed` takes over these functions after this.
        folder = os.path.join(os.path.dirname(os.path.dirname(module.__file__)), "")
        self.times.set_files(module.__file__, folder)
        names = _MESSAGES_OF_TORCH if self.only_messages else _OF_TORCH | _MESSAGES_OF_TORCH
        for kind in (module.ProcessGroup, sys.modules["torch._C._distributed_c10d"].Backend):
            for name in _MESSAGES_OF_TORCH & vars(kind).keys():
                self.times.set_attribute(kind, name, _no_override(name, vars(kind)[name]))
            self._replace(kind, names, _OF_TORCH, is_library=True)
        if self.only_messages:
            return
        self._replace(module.Work, ("wait",), (), is_library=True)
        module.init_process_group = self._opening(module.init_process_group)
        module.destroy_process_group = self._closing(module.destroy_process_group)
        atexit.register(self._close)  # runs before functions that were registered earlier

    def _record_groups(self, module: Any) -> None:
        self._replace(module.Group, _OF_TORCH, _OF_TORCH, is_library=False)

    def _record_works(self, module: Any) -> None:
        for kind in (module.DoneWork, module.PendingWork):
            self._replace(kind, ("wait",), (), is_library=False)

    def _opening(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def init_process_group(*arguments: Any, **named: Any) -> Any:
            _state_place()
            result = function(*arguments, **named)
            self.times.extend()
            self.is_open = True
            return result

        return init_process_group

    def _closing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def destroy_process_group(*arguments: Any, **named: Any) -> Any:
            self._close()
            return function(*arguments, **named)

        return destroy_process_group

    def _close(self) -> None:
        """End the time of torch's groups, whose calls from C++ have no line of their own."""
        if self.is_open:
            self.times.extend()
        self.is_open = False

    def _write(self) -> None:
        if self.process != os.getpid() or not os.path.isdir(self.folder):
            return  # a forked process, or a rank on another host
        import json

        nothing: tuple[Any, ...] = 0, 0, 0, 0, 0, []
        times = nothing if self.times is None else self.times.read()
        first, first_end, last, collectives, by_library, rows = times
        lines: dict[tuple[str, int, str], list[float]] = {}
        first_place = None
        for code, instruction, name, calls, nanoseconds, by_mpi, is_first in rows:
            place = code.co_filename, _line(code, instruction), name
            total = lines.setdefault(place, [0, 0.0, 0])
            total[0] += calls
            total[1] += nanoseconds / 1e9
            total[2] += by_mpi
            first_place = place if is_first else first_place
        report = {
            "boot": boot(), "first": first / 1e9, "first_end": first_end / 1e9, "last": last / 1e9,
            "first_place": first_place, "collectives": collectives, "by_library": by_library,
            "places": [[*place, *total] for place, total in lines.items()],
        }  # fmt: skip
        if self.only_messages and not lines:
            return
        name = str(self.process)
        if self.only_messages:  # a trace has files of several hosts, and reads them by these names
            name = f"messages-{os.uname().nodename}-{self.process}"
        path = os.path.join(self.folder, f"{name}.json")
        with open(f"{path}.part", "w") as file:
            json.dump(report, file)
        os.rename(f"{path}.part", path)


def _no_override(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of torch in C++ that pybind11 does not take for an override of itself.

    A group of torchcoll has no messages of its own. C++ then calls what the class names, unless a
    function of that name has called it.
    """

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        return method(self, *arguments, **named)

    call.__code__ = call.__code__.replace(co_name=name)
    return call


def boot() -> str:
    """Return the id of the running system, whose processes share a clock."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _line(code: Any, instruction: int) -> int:
    """Return the line of an instruction."""
    spans = (line for begin, end, line in code.co_lines() if begin <= instruction < end)
    line: int = next(spans, None) or code.co_firstlineno
    return line


class _Finder(MetaPathFinder):
    """Finds a recorded module as the other finders do, with a loader that replaces its methods."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.recorder.modules:
            return None
        # Those before this one may ask it, as it would ask them.
        finders = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(fullname, path, target) for finder in finders)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Recording(spec.loader, self.recorder)
        return spec


class _Recording(Loader):
    """Loads a module by its loader, then has its methods recorded."""

    def __init__(self, loader: Loader, recorder: Recorder) -> None:
        self.loader, self.recorder = loader, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)  # such as `path` and `get_filename`

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.recorder.record(module)


_PLACES = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")
"""The variables of launchers of MPI programs with the rank, and the number of ranks."""


def _state_place() -> None:
    """State this process's place as torchrun does, where an mpirun has started the ranks.

    torch's own rendezvous needs it. The port depends on the launcher's process, so that the ranks
    of a host agree.
    """
    environment = os.environ
    for rank, size in _PLACES:
        if "RANK" not in environment and rank in environment and size in environment:
            environment["RANK"], environment["WORLD_SIZE"] = environment[rank], environment[size]
            environment.setdefault("MASTER_ADDR", "127.0.0.1")
            environment.setdefault("MASTER_PORT", str(20000 + os.getppid() % 20000))
