from synthetic.fixtures import *  # noqa: F403
