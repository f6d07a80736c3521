"""Whether this thread uses a GPU already."""

from __future__ import annotations

import ctypes

from mpicoll.gpu.driver import library


def uses_gpu() -> bool:
    """Whether a GPU's context is bound to the calling thread.

    "If no context is bound to the calling CPU thread then ``*pctx`` is set to NULL and CUDA_SUCCESS
    is returned" (CUDA driver API, cuCtxGetCurrent). Work on a GPU binds its context, and so does
    cudaSetDevice: since CUDA 12 it "will explicitly initialize the runtime" there.
    """
    try:
        driver = library()
    except OSError:
        return False
    context = ctypes.c_void_p()
    return driver.cuCtxGetCurrent(ctypes.byref(context)) == 0 and context.value is not None
