"""How hard is the code to enter? Counts what a newcomer has to open, as a Markdown table.

    python scripts/structure.py                                  # this checkout
    python scripts/structure.py --root . --against ../old        # two columns: ../old, then this one

| measure | how it is counted |
|---|---|
| one importer | modules (no ``__init__.py``) that exactly one other module of the package imports |
| one caller | functions at module level whose name is used exactly once in the package, imports and ``__all__`` aside |
| tables per study | literals at module level, outside the study folders, with at least two study names as keys or items |
| duplicated class names | names that more than one top-level class has |
| loaded modules | modules of the package in ``sys.modules`` after one import in a fresh process |

Only source text is read, except for the last row, which needs the packages that Headwise needs.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

SHORT = 6  # lines of a function that may not be a concept
PROVENANCE = ("headwise.atlas.provenance", "headwise.core.provenance")
HEAVY = ("torch", "headwise.figures", "headwise.describe")
OTHER_STUDIES = {"detection", "salience", "profile"}  # names that no folder of their own shows in every version
TABLES = ast.Dict | ast.Set | ast.List | ast.Tuple
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
Key = tuple[str, str]  # module, name


class Package:
    """The syntax trees of one checkout's package."""

    def __init__(self, root: Path):
        self.root = root
        self.source = root / "src" / "headwise"
        if not self.source.is_dir():
            raise SystemExit(f"There is no src/headwise in {root}; give the root of a checkout.")
        self.trees: dict[str, ast.Module] = {}
        self.paths: dict[str, Path] = {}
        for path in sorted(self.source.rglob("*.py")):
            parts = ("headwise", *path.relative_to(self.source).with_suffix("").parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.paths[name], self.trees[name] = path, ast.parse(path.read_text(encoding="utf-8"))

    def lines(self) -> int:
        return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in self.paths.values())

    def scripts(self) -> int:
        return sum(1 for _ in self.source.rglob("*.js"))

    def one_importer(self) -> tuple[int, int]:
        """Modules with exactly one importer, and all modules."""
        importers = defaultdict(set)
        for name, tree in self.trees.items():
            for node in ast.walk(tree):
                for imported in self._imported(node):
                    if imported != name:
                        importers[imported].add(name)
        modules = [name for name, path in self.paths.items() if path.name != "__init__.py"]
        return sum(len(importers[name]) == 1 for name in modules), len(modules)

    def _imported(self, node: ast.AST) -> list[str]:
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            return [name if name in self.trees else node.module for name in names]
        return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []

    @cached_property
    def functions(self) -> dict[Key, ast.FunctionDef | ast.AsyncFunctionDef]:
        return {
            (name, node.name): node
            for name, tree in self.trees.items()
            for node in tree.body
            if isinstance(node, FUNCTION)
        }

    def one_caller(self) -> tuple[int, int, int]:
        """Functions that are used once, those of at most six lines among them, and all functions."""
        uses = Counter(key for name in self.trees for key in self._uses(name) if key in self.functions)
        once = [key for key in self.functions if uses[key] == 1]
        sizes = [(self.functions[key].end_lineno or 0) - self.functions[key].lineno + 1 for key in once]
        return len(once), sum(size <= SHORT for size in sizes), len(self.functions)

    def _uses(self, module: str) -> Iterator[Key]:
        tree = self.trees[module]
        names: dict[str, Key] = {name: (home, name) for home, name in self.functions if home == module}
        modules: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    if whole in self.trees:
                        modules[alias.asname or alias.name] = whole
                    else:
                        names[alias.asname or alias.name] = (node.module, alias.name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in names:
                yield self._defined(names[node.id])
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                yield self._defined((modules[node.value.id], node.attr))

    @cached_property
    def _reexports(self) -> dict[Key, Key]:
        return {
            (module, alias.asname or alias.name): (node.module, alias.name)
            for module, tree in self.trees.items()
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }

    def _defined(self, key: Key) -> Key:
        """Where a name that is imported from a package is defined."""
        for _ in range(10):
            if key in self.functions or key not in self._reexports:
                break
            key = self._reexports[key]
        return key

    def duplicated_classes(self) -> list[str]:
        names = Counter(
            node.name for tree in self.trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
        )
        return sorted(name for name, count in names.items() if count > 1)

    # ---- tables that name studies ---------------------------------------------------------------------------------

    @cached_property
    def studies(self) -> set[str]:
        folders = {path.parent.name for path in (self.source / "studies").glob("*/__init__.py")}
        return folders | OTHER_STUDIES

    def tables(self) -> dict[str, int]:
        """File -> literals in it that name at least two studies. Study folders are left out."""
        found = Counter()
        for name, path in self.paths.items():
            parts = path.relative_to(self.source).parts
            if parts[0] == "studies" and len(parts) > 2:
                continue
            for node in self.trees[name].body:
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    found[str(path.relative_to(self.source))] += self._names_studies(node.value)
        return {file: count for file, count in sorted(found.items()) if count}

    def _names_studies(self, value: ast.expr) -> bool:
        for node in ast.walk(value):
            if isinstance(node, TABLES):
                items = node.keys if isinstance(node, ast.Dict) else node.elts
                if len({study for item in items if (study := self._study(item))}) > 1:
                    return True
        return False

    def _study(self, item: ast.expr | None) -> str | None:
        """The study that a key names: "profile", PROFILE or profile.NAME."""
        if isinstance(item, ast.Constant):
            return item.value if item.value in self.studies else None
        if isinstance(item, ast.Attribute) and item.attr == "NAME" and isinstance(item.value, ast.Name):
            return item.value.id
        if isinstance(item, ast.Name):
            return item.id.lower() if item.id.lower() in self.studies else None
        return None

    # ---- closures -------------------------------------------------------------------------------------------------

    def provenance(self) -> str:
        return next((name for name in PROVENANCE if name in self.trees), PROVENANCE[-1])

    def measures(self) -> list[str]:
        """The modules that measure: one per study, or the profile's module in checkouts that have none."""
        found = [name for name in self.trees if name.startswith("headwise.studies.") and name.endswith(".measure")]
        return found or ["headwise.studies.profile"]

    def closure(self, module: str) -> tuple[int, list[str]]:
        """How many of our modules an import loads, and which heavy ones."""
        code = f"import sys, {module}\nprint(*sorted(sys.modules))"
        environment = os.environ | {"PYTHONPATH": str(self.root / "src")}
        run = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, cwd=self.root
        )
        if run.returncode:
            raise SystemExit(f"import {module} failed in {self.root}:\n{run.stderr[-1500:]}")
        loaded = set(run.stdout.split())
        ours = sum(name == "headwise" or name.startswith("headwise.") for name in loaded)
        return ours, [name for name in HEAVY if name in loaded]


def rows(package: Package) -> dict[str, str]:
    """The table's rows: what is counted -> the count."""
    importer, modules = package.one_importer()
    once, short, functions = package.one_caller()
    tables, duplicated = package.tables(), package.duplicated_classes()
    waist, heavy = package.closure(package.provenance())
    largest, (measured, loaded) = max(
        ((name, package.closure(name)) for name in package.measures()), key=lambda found: found[1][0]
    )
    return {
        "Python files in `src/headwise`": f"{len(package.paths):,}",
        "Python lines in `src/headwise`": f"{package.lines():,}",
        "JavaScript files": f"{package.scripts():,}",
        "tables that name studies, outside study folders": f"{sum(tables.values())} in {len(tables)} files",
        "modules with exactly one importer": f"{importer / modules:.0%} ({importer:,} of {modules:,})",
        "module-level functions with exactly one caller": f"{once / functions:.0%} ({once:,} of {functions:,})",
        f"of these, with at most {SHORT} lines": f"{short:,}",
        "duplicated class names": f"{len(duplicated)}",
        "modules loaded by `…provenance`": f"{waist} ({package.provenance()})",
        "heavy modules it loads": ", ".join(heavy) or "none",
        "modules loaded by a study's measure (the largest)": f"{measured} ({largest})",
        "heavy modules that measure loads": ", ".join(loaded) or "none",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="the checkout to count")
    parser.add_argument("--against", type=Path, help="an older checkout, as the first column")
    parser.add_argument("--list", action="store_true", help="also list the tables and the duplicated class names")
    asked = parser.parse_args()
    packages = [Package(root.resolve()) for root in (asked.against, asked.root) if root is not None]
    columns = [rows(package) for package in packages]
    titles = ["before", "after"] if len(columns) > 1 else ["count"]
    print(f"| | {' | '.join(titles)} |\n|---|{'--:|' * len(columns)}")
    for label in columns[-1]:
        print(f"| {label} | {' | '.join(column[label] for column in columns)} |")
    if asked.list:
        print("\nTables:", *(f"- {file}: {count}" for file, count in packages[-1].tables().items()), sep="\n")
        print("\nDuplicated class names:", ", ".join(packages[-1].duplicated_classes()) or "none")


if __name__ == "__main__":
    main()
