from synthetic.fixtures import *  # noqa: F403
from synthetic.fixtures import _one_spectral  # noqa: F401
