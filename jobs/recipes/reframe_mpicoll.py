"""A ReFrame test: run the benchmark, check its results, and read its times.

``reframe -c jobs/recipes/reframe_mpicoll.py -r`` on a system of your configuration.
``-S tasks=64 -S sizes=1K,64M`` sets the number of ranks and the sizes.
"""

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class MpicollAllreduce(rfm.RunOnlyRegressionTest):
    """Allreduce by the library and by the algorithm that mpicoll chooses."""

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "mpicoll"
    tasks = variable(int, value=2)
    sizes = variable(str, value="1K,1M")

    @run_before("run")
    def set_command(self):
        """Set the number of ranks and the command line."""
        self.num_tasks = self.tasks
        self.executable_opts = [
            "bench", "allreduce", "--backends", "mpi4py", "--algorithms", "auto",
            "--calls", "plans", "--sizes", self.sizes, "-J", "records.jsonl",
        ]  # fmt: skip
        self.keep_files = ["records.jsonl"]

    @sanity_function
    def check_results(self):
        """Check that no result was wrong."""
        return sn.assert_found(r"# Out of bounds values : 0 OK", self.stdout)

    @run_before("performance")
    def read_figures(self):
        """Read the median times of the records, in microseconds."""
        lines = Path(self.stagedir, "records.jsonl").read_text().splitlines()
        cases = [record for record in map(json.loads, lines) if record["kind"] == "case"]
        self.perf_variables = {
            f"{case['algorithm']}_{case['bytes_total']}_bytes": sn.make_performance_function(
                sn.defer(case["time_us"]["median"]), "us"
            )
            for case in cases
            if case["time_us"]
        }
