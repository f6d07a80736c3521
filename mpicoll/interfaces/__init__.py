"""The protocols that a backend implements: arrays, shared memory, GPU driver, transport.

`mpicoll.mpi.transport`, `torchcoll.transport` and `mpicoll.threads.transport` implement
`Transport`. Nothing else of a backend is visible above.
"""

from mpicoll.interfaces.arrays import Array, Arrays, Memory, Stopwatch, Stream, Thunk
from mpicoll.interfaces.calls import Apart, Calls, Native, NativeCall, Request, RunOn
from mpicoll.interfaces.gpu import Batch, Exported, Gpu, WordOperation
from mpicoll.interfaces.memory import (
    Allocator,
    Area,
    Location,
    Retired,
    SharedMemory,
    SharedPlan,
    Store,
    WordStore,
)
from mpicoll.interfaces.transport import (
    CMA,
    DIRECT,
    GPU_TRANSPORTS,
    IPC,
    POINT_TO_POINT,
    STAGED,
    SYMMETRIC,
    TRANSPORTS,
    Message,
    Messages,
    Nodes,
    Transport,
)
from mpicoll.interfaces.waiting import Exchange, Notes, Stage, WaitContext, WaitPolicy, Words

__all__ = [
    "CMA", "DIRECT", "GPU_TRANSPORTS", "IPC", "POINT_TO_POINT", "STAGED", "SYMMETRIC",
    "TRANSPORTS", "Allocator", "Apart", "Area", "Array", "Arrays", "Batch", "Calls", "Exchange",
    "Exported", "Gpu", "Location", "Memory", "Message", "Messages", "Native", "NativeCall",
    "Nodes", "Notes", "Request", "Retired", "RunOn", "SharedMemory", "SharedPlan", "Stage",
    "Stopwatch", "Store", "Stream", "Thunk", "Transport", "WaitContext", "WaitPolicy",
    "WordOperation", "WordStore", "Words",
]  # fmt: skip
