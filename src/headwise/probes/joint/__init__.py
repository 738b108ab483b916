"""One classifier over all heads at once: which of several labels does an item have, and which heads say so?

    fits = fit_joint(features, labels, train, groups, classes=8)      # features (row, head, feature)
    fits.logits[:, ~train]                                            # (fit, row, class): what each seed's probe says
    fits.importance                                                   # (fit, class, head): gradient x activation

This folder needs torch, and `import headwise.probes` does not load it: import what you need from here. In reading order:

- ``network``: the classifier, shared map, hidden layer, classes; ``training``: how it is fitted, and for how long;
- ``importance``: what each head adds to a class's logit; ``fits``: several seeds, and shuffled labels beside them.
"""

from headwise.probes.joint.fits import JointFits, fit_joint
from headwise.probes.joint.importance import importance
from headwise.probes.joint.network import Network
from headwise.probes.joint.training import Training

__all__ = ["JointFits", "Network", "Training", "fit_joint", "importance"]
