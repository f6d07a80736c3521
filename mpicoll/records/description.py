"""The description of a run: the command, versions, machines and settings."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from mpicoll.records.fields import Amount, Count, Integer, Name, Positive


class Run(Struct, kw_only=True):
    """The part of a run's description that stands in each of its records.

    Attributes:
        id: the same in all records of a run.
        started: time of the start.
        command: arguments of the command.
        seed: seed of the order of the measurements.
        versions: version of each package.
        libraries: library of each backend.
        transports: transports of each backend.
        threads: thread level that MPI has given; None without MPI.
        executor: executor of schedules over host memory, such as ``compiled (avx512)``. Older
            records have ``closures:`` and a reason if the extension was not built.
        choice: tables that `auto` reads, for each backend.
        probe: measurements of older versions for `auto`, for each backend.
        hosts: host of each rank.
        cores: cores that each rank may use.
        quota: cores that a container allows.
        load: load of the host of rank 0 before the run.
        oversubscribed: whether there are more ranks than cores.
        gpu_transports: for each backend the reason why a transport does not serve arrays on GPUs;
            an empty text if it does.
        gpu_copy_GBps: 10^9 bytes that a copy within one GPU reads and writes in a second.
        gpus: GPU of each rank, as ``GPU-`` and a UUID or as a PCI bus address.
    """

    id: Name = ""
    started: Name = ""
    command: list[str] = field(default_factory=list)
    seed: Integer = 0
    versions: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    transports: dict[str, list[str]] = field(default_factory=dict)
    threads: Name | None = None
    executor: str | None = None
    choice: dict[str, str] | UnsetType = UNSET
    probe: dict[str, str] | UnsetType = UNSET
    hosts: list[Name] = field(default_factory=list)
    cores: list[list[Count]] = field(default_factory=list)
    quota: Amount | None = None
    load: Amount | None = None
    oversubscribed: bool = False
    gpu_transports: dict[str, dict[str, str]] | UnsetType = UNSET
    gpu_copy_GBps: Positive | UnsetType = UNSET
    gpus: list[Name] | UnsetType = UNSET


class Git(Struct):
    """The commit of the checkout that ran, and whether files differed from it."""

    commit: str
    dirty: bool


class Mpi(Struct):
    """The MPI library as it describes itself.

    Attributes:
        standard: the version of MPI that it implements.
        device: MPICH's; `provider`: the network library below it, where that is known.
    """

    library: str
    standard: str | None = None
    thread_level: Count | None = None
    device: Name | None = None
    provider: str | None = None


class Stack(Struct):
    """The libraries below the Python packages; None where one was not loaded."""

    mpi: Mpi | None = None
    nccl: str | None = None
    cuda_runtime: str | None = None
    cuda_driver: str | None = None


class Machine(Struct):
    """A host, and how many ranks ran on it."""

    host: Name
    ranks: Count = 0
    processor: str | None = None
    kernel: str | None = None
    cores: Count | None = None


class Binding(Struct):
    """The cores that a rank may use, as ranges; `bound`: fewer than its host has."""

    rank: Count
    host: Name
    cores: str
    bound: bool


class Clock(Struct):
    """The bound on the error of the ranks' clocks; None where they were not compared."""

    sync_error_us: Amount | None = None


class Settings(Struct, kw_only=True):
    """The flags of measuring; those that the command does not have are absent."""

    sizes: list[Count] | UnsetType = UNSET
    transports: list[str] | UnsetType = UNSET
    device: Name | UnsetType = UNSET
    budget: Amount | UnsetType = UNSET
    samples: Count | UnsetType | None = UNSET
    warmup: Count | UnsetType = UNSET
    checks: Count | UnsetType = UNSET
    timing: Name | UnsetType = UNSET
    seed: Integer | UnsetType = UNSET
    precision: Amount | UnsetType = UNSET
    confidence: Amount | UnsetType = UNSET
    least: Count | UnsetType = UNSET
    most: Count | UnsetType = UNSET


class FullRun(Run, kw_only=True):
    """The whole description of a run, as it stands in the line before its records.

    Attributes:
        argv: the whole command line; `git`: None outside a checkout.
        environment: the variables that matter, with secrets masked.
    """

    argv: list[str] = field(default_factory=list)
    directory: str = ""
    git: Git | None = None
    settings: Settings = field(default_factory=Settings)
    stack: Stack = field(default_factory=Stack)
    machines: list[Machine] = field(default_factory=list)
    binding: list[Binding] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def cores_of_load(self) -> int:
        """The cores of rank 0's host, to which `load` refers; 0 if unknown.

        Hosts may share one machine, so the cores of all hosts are not added up.
        """
        if self.machines and self.machines[0].cores:
            return self.machines[0].cores
        pairs = zip(self.hosts, self.cores, strict=False)
        return len({core for host, cores in pairs if host == self.hosts[0] for core in cores})
