#!/bin/sh
# The cost of the release assertions of the deciding crates, in percent of all instructions of the simulator.
#
#   bench/assertions.sh [SEEDS]        a table for every ordering, from so many seeds of each (default 20)
#
# Needs valgrind. The simulator runs each seed with assertions and without, the latter built from a copy of the tree in
# which `cargo xtask assertions off` switched them off: it decides the same, so the difference is theirs alone.
set -eu
seeds=${1:-20}
root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_LTO=off

build() { # build TREE NAME
    (cd "$1" && CARGO_TARGET_DIR="$target/assertions" cargo build --quiet --profile dist -p seriatim-sim)
    cp "$target/assertions/dist/seriatim-sim" "$work/$2"
}

profile() { # profile NAME ORDERING
    valgrind --quiet --tool=callgrind --dump-instr=no --callgrind-out-file="$work/profiles/$2.$1" "$work/$1" \
        --profile any --protocol "$2" --from 1 --seeds "$seeds" --threads 1 > "$work/$2.$1.log"
}

mkdir "$work/profiles" "$work/tree"
build "$root" with
(cd "$root" && git ls-files -z | xargs -0 tar cf -) | tar xf - -C "$work/tree"
(cd "$work/tree" && CARGO_TARGET_DIR="$target/assertions" cargo run --quiet -p xtask -- assertions off)
build "$work/tree" without
for ordering in erwin-bb erwin-st corfu scalog belfast; do
    profile with "$ordering"
    profile without "$ordering"
done
(cd "$root" && CARGO_TARGET_DIR="$target/assertions" cargo run --quiet -p xtask -- assertions "$work/profiles")
