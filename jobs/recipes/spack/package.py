"""The package of mpicoll for Spack: ``spack repo create``, then packages/py-mpicoll/package.py."""

from spack.package import *


class PyMpicoll(PythonPackage):
    """Collective communication in Python, native and algorithmic, compared in one run."""

    pypi = "mpicoll/mpicoll-0.2.0.tar.gz"
    license("BSD-3-Clause")

    # Give the sum of the released file: spack checksum py-mpicoll.
    version("0.2.0", sha256="0" * 64)

    variant("torch", default=False, description="Serve torch.distributed, too")

    depends_on("c", type="build")
    depends_on("python@3.11:3.15", type=("build", "link", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("mpi")
    depends_on("py-click@8.1:", type=("build", "run"))
    depends_on("py-jinja2@3.1:", type=("build", "run"))
    depends_on("py-mpi4py@4.0:", type=("build", "run"))
    depends_on("py-msgspec@0.21:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-platformdirs@4:", type=("build", "run"))
    depends_on("py-psutil@5.9:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-scipy@1.11:", type=("build", "run"))
    depends_on("py-torch@2.4: +distributed", type=("build", "run"), when="+torch")

    import_modules = ["mpicoll", "mpicoll.engine._compiled"]

    def test_versions(self):
        """Print the versions."""
        which("mpicoll")("--version")
