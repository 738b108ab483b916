"""Faults put into real builds: what is lost, what is doubled, what is measured anew?

    scene       a tiny model, its texts, the command line, and the build that nothing disturbs
    zygote      runs `headwise build` in processes of its own, without paying for the imports each time
    injection   what happens inside such a process: killed, refused by its disk, stopped, at the n-th change of the atlas
    damage      what happens to files between two runs: cut, flipped, lost, in the way
    verdict     the atlas that came out against the undisturbed one, and the census of examples

`benchmarks/soak.py` runs the same for as long as it is told.
"""
