"""A configuration of ReFrame for one machine: ``reframe -C jobs/recipes/reframe_local.py``."""

site_configuration = {
    "systems": [
        {
            "name": "here",
            "hostnames": [".*"],
            "partitions": [
                {
                    "name": "default",
                    "scheduler": "local",
                    "launcher": "mpirun",
                    "environs": ["default"],
                }
            ],
        }
    ],
    "environments": [{"name": "default"}],
}
