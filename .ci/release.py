"""Helps `.ci/release.sh`. Reads `cargo metadata --no-deps` of the workspace on standard input.

`names`: the packages that are published. `unpack CRATES FOLDER`: makes a workspace in FOLDER of their `.crate` files in
CRATES, in which they take each other in place of crates.io's. `old FEATURE…`: for `cargo check`, the packages and the
features that can be built without any of these features. `declared`: the versions of Rust that the manifests name.
"""

import json
import shutil
import sys
import tarfile
from pathlib import Path

metadata = json.load(sys.stdin)
published = {package["name"]: package for package in metadata["packages"] if package["publish"] != []}


def unpack(crates: Path, folder: Path) -> None:
    folders = {}
    for name, package in published.items():
        folders[name] = f"{name}-{package['version']}"
        with tarfile.open(crates / f"{folders[name]}.crate") as crate:
            crate.extractall(folder, filter="data")
    lines = ["[workspace]", 'resolver = "3"', f"members = {json.dumps(sorted(folders.values()))}", "[patch.crates-io]"]
    lines += [f"{name} = {{ path = {json.dumps(path)} }}" for name, path in folders.items()]
    (folder / "Cargo.toml").write_text("\n".join(lines) + "\n")
    shutil.copy(Path(metadata["workspace_root"]) / "Cargo.lock", folder)


def reaches(name: str, feature: str, refused: set[str]) -> bool:
    """Whether a feature of a package turns one on that is refused, here or in another package of the workspace."""
    if feature in refused:
        return True
    for entry in published[name]["features"].get(feature, []):
        other, slash, theirs = entry.partition("/")
        other = other.rstrip("?")
        if slash and other in published and reaches(other, theirs, refused):
            return True
        if not slash and not entry.startswith("dep:") and reaches(name, entry, refused):
            return True
    return False


def old(refused: set[str]) -> None:
    arguments = []
    for name, package in sorted(published.items()):
        arguments += ["-p", name]
        kept = [feature for feature in sorted(package["features"]) if not reaches(name, feature, refused)]
        if kept:
            arguments += ["--features", ",".join(f"{name}/{feature}" for feature in kept)]
    print(" ".join(arguments))


match sys.argv[1:]:
    case ["names"]:
        print("\n".join(sorted(published)))
    case ["declared"]:
        print("\n".join(sorted({str(package["rust_version"]) for package in published.values()})))
    case ["unpack", crates, folder]:
        unpack(Path(crates), Path(folder))
    case ["old", *refused]:
        old(set(refused))
    case _:
        sys.exit(__doc__)
