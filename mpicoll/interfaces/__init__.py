"""The protocols that a backend implements: arrays, shared memory, GPU driver, transport."""

from mpicoll.interfaces.arrays import Array, Arrays, Memory, Stopwatch, Thunk
from mpicoll.interfaces.memory import (
    Allocator,
    Area,
    Exchange,
    Exported,
    Gpu,
    Location,
    Retired,
    SharedMemory,
    SharedPlan,
    Store,
    WaitContext,
    WaitPolicy,
    Words,
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
    Native,
    NativeCall,
    Nodes,
    Request,
    Transport,
)

__all__ = [
    "CMA", "DIRECT", "GPU_TRANSPORTS", "IPC", "POINT_TO_POINT", "STAGED", "SYMMETRIC", "TRANSPORTS",
    "Allocator", "Area", "Array", "Arrays", "Exchange", "Exported", "Gpu", "Location", "Memory",
    "Message", "Messages", "Native", "NativeCall", "Nodes", "Request", "Retired", "SharedMemory",
    "SharedPlan", "Stopwatch", "Store", "Thunk", "Transport", "WaitContext", "WaitPolicy", "Words",
]  # fmt: skip
