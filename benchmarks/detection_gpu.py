"""The detection benchmark of several models on a GPU, in calls of limited length; the next call resumes what is not finished.

    python benchmarks/detection_gpu.py --models models --data data --output bench --seconds 540

``models`` has one folder (or .gguf file) per model, ``data`` one folder of rows per question set (triviaqa, nq_open, sciq,
gsm8k, coqa: `headwise.corpora.hub`), ``output`` becomes one benchmark per model. Models are run from the smallest on, each in a
process of its own, which is stopped when the time is over. It keeps what it has measured, as any build does, so that the same
command goes on; models that are done are left alone. Prints the seconds of each, and writes nothing else.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

GRACE = 60  # seconds that a stopped build has to finish a write


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    return (
        path.stat().st_size if path.is_file() else sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    )


def run(command: list[str], seconds: float) -> bool:
    """Whether it ended by itself, and well; stopped as Ctrl-C does when the time is over."""
    process = subprocess.Popen(command)
    try:
        return process.wait(timeout=seconds) == 0
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
        return False


def main() -> int:
    """All models in turn; 0 where all are done, 3 where time ran out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("bench"))
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=540.0)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    sets = ",".join(f"{folder.name}={folder}" for folder in sorted(options.data.iterdir()) if folder.is_dir())
    options.output.mkdir(parents=True, exist_ok=True)
    for model in sorted(options.models.iterdir(), key=size_of):
        target = options.output / model.stem
        if (target / "report.html").exists():
            print(f"{model.name}: done before", flush=True)
            continue
        left = end - time.monotonic()
        if left < GRACE:
            return 3
        command = [
            sys.executable, "-m", "headwise", "bench", "detection", str(model), "--sets", sets, "--limit", str(options.limit),
            "--set", f"uncertainty.samples={options.samples}", "-o", str(target),
        ]  # fmt: skip
        started = time.monotonic()
        ended = run(command, left)
        print(
            f"{model.name}: {'done' if ended else 'not finished'} after {time.monotonic() - started:.0f} s", flush=True
        )
        if not ended and time.monotonic() >= end:
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
