"""Whatever is read, typed or asked: an answer, or one clear sentence. Cases are drawn by grammars, from recorded seeds.

    odd.py         values nobody expects, and small changes of JSON trees and of bytes
    harness.py     what must hold for every case, and how one is tried
    scene.py       good inputs, of which the cases are changed copies: atlases, a detector, models, data files, a server
    files.py       grammars of what other people send: atlases, detectors, data files, models, adapters
    callers.py     grammars of what people type and browsers ask: command lines, settings, requests
    test_fuzz.py   a short run, the same cases every time

`benchmarks/fuzz.py` (``make fuzz``) draws from the same grammars for as long as it is told. A case is named by its grammar, a
seed and a number: ``python benchmarks/fuzz.py "command lines" --seed 0 --case 17`` tries one again.
"""
