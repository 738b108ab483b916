"""A hook for processes that a test does not start itself, such as Ray's workers: put this folder on PYTHONPATH.

Python imports a module of this name when it starts. If HEADWISE_FAULT holds a fault (see `faults.injection`), it is put into
the process as soon as that imports what measures.
"""

import importlib.util
import json
import os
import sys
from importlib.abc import MetaPathFinder

MEASURES = "headwise.studies.runner"


class Planter(MetaPathFinder):
    """Finds nothing itself; wraps what others find."""

    def find_spec(self, name, path, target=None):
        if name != MEASURES:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def run_and_plant(module):
            run(module)
            from faults.injection import watch_studies

            watch_studies(json.loads(os.environ["HEADWISE_FAULT"]), lambda **line: None)

        spec.loader.exec_module = run_and_plant
        return spec


if "HEADWISE_FAULT" in os.environ:
    sys.meta_path.insert(0, Planter())
