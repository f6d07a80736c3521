"""The calls of the CUDA driver, against a library with their signatures."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mpicoll import Unavailable
from mpicoll.gpu import driver as cuda

# The prototypes are those of cuda.h; every value shows whether it arrived as it should.
DRIVER = r"""
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef uint64_t CUdeviceptr;
typedef int CUresult;
typedef struct { unsigned char reserved[64]; } CUipcMemHandle;
int synchronized = 0;
CUdeviceptr closed = 0;
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at)
{ *base = at & ~(CUdeviceptr)0xffff; *size = 0x10000; return at ? 0 : 1; }
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at)
{ memset(handle, 7, sizeof *handle); memcpy(handle, &at, sizeof at);
  handle->reserved[63] = 9; return at == 0x7f0000000000 ? 801 : 0; }
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags)
{ memcpy(at, &handle, sizeof *at); *at += 0x100000000;
  return handle.reserved[63] == 9 && handle.reserved[30] == 7 && flags == 1 ? 0 : 1; }
CUresult cuCtxSynchronize(void) { synchronized = 1; return 0; }
CUresult cuIpcCloseMemHandle(CUdeviceptr at) { closed = at; return synchronized ? 0 : 1; }
CUresult cuGetErrorString(CUresult error, const char **text)
{ *text = error == 801 ? "operation not supported" : NULL; return error == 801 ? 0 : 1; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("driver")
    source, built = folder / "driver.c", folder / "libdriver.so"
    source.write_text(DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, source], check=True)
    return built


@pytest.fixture
def driver(library: Path, monkeypatch: pytest.MonkeyPatch) -> cuda.Driver:
    monkeypatch.setattr(cuda, "_LIBRARY", str(library))
    return cuda.Driver()


def test_an_allocation_travels_by_its_handle(driver: cuda.Driver) -> None:
    exported = driver.export(0x7E0000012345)
    assert exported.offset == 0x2345
    assert len(exported.handle) == 64
    assert driver.open(exported.handle) == 0x7E0000010000 + 0x100000000
    driver.close(0x7E0100010000)


def test_a_refusal_is_told_in_the_drivers_words(driver: cuda.Driver) -> None:
    with pytest.raises(Unavailable, match="cuIpcGetMemHandle: operation not supported"):
        driver.export(0x7F0000000001)
    with pytest.raises(Unavailable, match="cuMemGetAddressRange_v2: CUDA error 1"):
        driver.export(0)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_LIBRARY", "libnowhere.so.1")
    with pytest.raises(Unavailable, match=r"no CUDA driver: libnowhere\.so\.1"):
        cuda.Driver()
