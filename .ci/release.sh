#!/usr/bin/env bash
# What a release needs beyond `.ci/run`: `bash .ci/release.sh`, from any directory. Part of `.ci/full`.
#
# The crates are packed and unpacked into a workspace of their own, where they take each other in place of crates.io's:
# everything is tried on what would be published. `bash .ci/release.sh accept` writes the lists of public items,
# `.ci/api/<crate>.txt`, anew: look at what changed in them, and commit it with the change that caused it. Steps can be
# named: `bash .ci/release.sh promises documentation oldest public_items`.
#
# Toolchains come from rustup, cargo-public-api from crates.io. What cannot be had is skipped: the last line says so,
# and the exit code is 77. Needs about 6 GB below the target directory; CARGO_BUILD_JOBS bounds the cores that are used.
set -euo pipefail
exec </dev/null
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target/for-release}
mode=check
steps=("$@")
((${#steps[@]} > 0)) || steps=(promises documentation oldest public_items semver)
for step in "${steps[@]}"; do
  case $step in
  accept) mode=accept ;;
  promises | documentation | oldest | public_items | semver) ;;
  *) echo 'usage: bash .ci/release.sh [accept | promises | documentation | oldest | public_items | semver]…' >&2; exit 2 ;;
  esac
done
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
skipped=()
SECONDS=0
began=0

passed() {
  printf -- '-- release: %s (%d s)\n' "$1" $((SECONDS - began))
  began=$SECONDS
}

skip() {
  skipped+=("$1")
  printf -- '-- release: skipped: %s\n' "$1"
}

fail() {
  tail -n 40 "$scratch/log" >&2 2>/dev/null || true
  printf 'FAILED: release: %s\n' "$1" >&2
  exit 1
}

# Whether a toolchain is here or could be installed.
toolchain() {
  rustc "+$1" --version >/dev/null 2>&1 && return 0
  rustup toolchain install "$1" --profile minimal >"$scratch/rustup.log" 2>&1 && return 0
  skip "no Rust $1, and rustup cannot install it: $2"
  return 1
}

helper() { python3 "$root/.ci/release.py" "$@" <"$scratch/metadata"; }

cargo metadata --no-deps --format-version 1 >"$scratch/metadata"
helper names >"$scratch/names"
packages=()
while read -r name; do packages+=(-p "$name"); done <"$scratch/names"

pack() {
  # A tree with changes is packed too: this runs before a commit.
  cargo package "${packages[@]}" --no-verify --allow-dirty >"$scratch/log" 2>&1 || fail 'the crates cannot be packed'
  # The quickstart lies in the folder of another package, which the facade cannot take along.
  if grep '^warning' "$scratch/log" | grep -v 'ignoring example `quickstart`'; then fail 'cargo package warns'; fi
  mkdir "$scratch/unpacked"
  helper unpack "$CARGO_TARGET_DIR/package" "$scratch/unpacked"
  passed "$(wc -l <"$scratch/names") crates packed without a warning"
}

# As docs.rs builds the page of each release.
documentation() {
  toolchain nightly 'the documentation was not built as docs.rs does' || return 0
  RUSTDOCFLAGS='--cfg docsrs -D warnings' cargo +nightly doc -p entourage --no-deps --all-features >"$scratch/log" 2>&1 ||
    fail 'the documentation of the packed facade'
  passed 'documentation of the facade as on docs.rs'
}

# The README promises two versions: the second one with the databases.
promises() {
  local promise='s/^Rust \([0-9.]*\) or newer; \([0-9.]*\) with `sqlite` or `postgres`\..*/\1 \2/p'
  read -r least stores < <(sed -n "$promise" "$root/README.md") || fail 'README.md names no two versions of Rust'
  helper declared >"$scratch/declared"
  [ "$(cat "$scratch/declared")" = "$least" ] || fail "README.md says $least, manifests: $(xargs <"$scratch/declared")"
  if toolchain "$least.0" "nothing was tried on it"; then
    local arguments
    read -ra arguments < <(helper old sqlite postgres)
    cargo "+$least.0" check "${arguments[@]}" >"$scratch/log" 2>&1 || fail "Rust $least, which README.md promises"
    passed "Rust $least: all crates, all features but the databases"
  fi
  if toolchain "$stores.0" "nothing was tried on it"; then
    cargo "+$stores.0" check "${packages[@]}" --all-features >"$scratch/log" 2>&1 ||
      fail "Rust $stores with all features, which README.md promises"
    passed "Rust $stores: all crates, all features"
  fi
}

# The oldest versions of direct dependencies that the manifests allow. In a copy of the tree: the lockfile changes.
oldest() {
  toolchain nightly 'the oldest versions of dependencies were not tried' || return 0
  mkdir "$scratch/oldest"
  git -C "$root" ls-files -z --cached --others --exclude-standard | tar -C "$root" --null -T - -cf - | tar -C "$scratch/oldest" -xf -
  cd "$scratch/oldest"
  rm Cargo.lock
  cargo +nightly -Z direct-minimal-versions generate-lockfile >"$scratch/log" 2>&1 ||
    fail 'a dependency needs a newer version of another one than Cargo.toml asks for: raise it there'
  cargo +nightly check --locked "${packages[@]}" --all-features >"$scratch/log" 2>&1 ||
    fail 'a crate does not build with the oldest version that Cargo.toml allows: raise it there'
  cd "$scratch/unpacked"
  passed 'the oldest versions of dependencies that the manifests allow'
}

# What a program can name: each line that changes is a change for users.
public_items() {
  toolchain nightly 'the public items were not compared' || return 0
  local version=0.52.0 tools=$CARGO_TARGET_DIR/tools name changed=()
  if ! cargo install --debug --locked --root "$tools" "cargo-public-api@$version" >"$scratch/log" 2>&1; then
    skip "cargo-public-api cannot be installed: the public items were not compared"
    return 0
  fi
  mkdir -p "$root/.ci/api"
  while read -r name; do
    "$tools/bin/cargo-public-api" public-api --manifest-path "$scratch/unpacked/$name"-[0-9]*/Cargo.toml --all-features -sss \
      >"$scratch/long" 2>"$scratch/log" || fail "the public items of $name"
    # A third less text without the crate's own name and the paths of the standard library.
    sed -E "s/\b${name//-/_}::/::/g; s/\b(core|alloc|std)::([a-z_]+::)+([A-Z])/\3/g" "$scratch/long" >"$scratch/items"
    [ "$mode" = check ] || cp "$scratch/items" "$root/.ci/api/$name.txt"
    diff -uN "$root/.ci/api/$name.txt" "$scratch/items" || changed+=("$name")
  done <"$scratch/names"
  ((${#changed[@]} == 0)) ||
    fail "public items changed in ${changed[*]}; if they should: \`bash .ci/release.sh accept\`, and commit .ci/api"
  passed "public items of $(wc -l <"$scratch/names") crates as in .ci/api"
}

semver() {
  skip 'cargo-semver-checks: nothing has been released that it could compare with; .ci/api shows each change'
}

pack
cd "$scratch/unpacked"
for step in "${steps[@]}"; do
  case $step in accept) public_items ;; *) "$step" ;; esac
done
if ((${#skipped[@]} > 0)); then
  (IFS=';'; printf 'release: skipped: %s\n' "${skipped[*]}")
  exit 77
fi
