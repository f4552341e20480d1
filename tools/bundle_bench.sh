#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs bench/fidelity for a host that has Python and torch, but not the packages of a build.
set -euo pipefail

usage() {
  cat <<END
Usage: tools/bundle_bench.sh [BUILD] [OUT.tar.xz]

Collects from BUILD (default build/bench) the fidelity benchmark, the shared libraries it needs except those of the C
library and of torch, the embedded model, the evaluation rows and the settings, into OUT (default
build/fidelity-bundle.tar.xz). On the other host:

  tar xJf fidelity-bundle.tar.xz && cd fidelity-bundle && ./run --device cuda --rows 32 --out results.jsonl

\`run\` asks the host's python3 for its torch folder (PYTHON names another interpreter, SPARSED_TORCH the folder itself).
It must hold the torch version of the build, 2.11, and the host's C library must be no older than this one's.
END
}
case "${1:-}" in
  -h | --help) usage; exit 0 ;;
esac
[ $# -le 2 ] || { usage >&2; exit 2; }
die() { echo "bundle_bench: $*" >&2; exit 1; }

root=$(cd "$(dirname "$0")/.." && pwd)
build=$(realpath -m "${1:-$root/build/bench}")
out=$(realpath -m "${2:-$root/build/fidelity-bundle.tar.xz}")
binary=$build/bin/fidelity
[ -x "$binary" ] || die "$binary is missing: cmake --preset bench && cmake --build build/bench --target fidelity"
unresolved=$(ldd "$binary" | awk '/not found/ {print $1}')
[ -z "$unresolved" ] || die "libraries that $binary needs are not found here: $unresolved"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/fidelity-bundle
mkdir -p "$bundle/lib" "$bundle/eval" "$bundle/model"

# Of torch's folder and of what its libraries load (CUDA) the host has its own.
c_library='^(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libutil)\.so'
ldd "$binary" | awk '$2 == "=>" {print $1, $3}' | while read -r name path; do
  [[ $name =~ $c_library || $path == */torch/lib/* || $path == */nvidia/* ]] || cp -L "$path" "$bundle/lib/$name"
done
cp "$binary" "$bundle/fidelity"
strip --strip-unneeded "$bundle/fidelity" "$bundle"/lib/*
cp "$root"/models/demo-llada-17m/* "$bundle/model/"
cp "$build"/eval/*.jsonl "$bundle/eval/"
cp "$root"/bench/fidelity_settings.jsonl "$root"/LICENSE "$root"/NOTICE "$bundle/"

cat > "$bundle/run" <<'RUN'
#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs ./fidelity on this host's torch; options as `./run --help` lists them. --out is relative to this folder.
set -euo pipefail
cd "$(dirname "$0")"
# Found without importing torch, which takes seconds and may initialise the GPU.
torch=${SPARSED_TORCH:-$("${PYTHON:-python3}" -c 'import importlib.util as u
print(u.find_spec("torch").submodule_search_locations[0])')} ||
  { echo "run: this python3 has no torch: set PYTHON, or SPARSED_TORCH to torch's folder" >&2; exit 1; }
[ -e "$torch/lib/libtorch_cpu.so" ] || { echo "run: $torch has no lib/libtorch_cpu.so" >&2; exit 1; }
export LD_LIBRARY_PATH=$PWD/lib:$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# The binary links torch's CPU half; the CUDA half registers its operators when it is loaded.
previous=
for option in "$@"; do
  [ "$previous $option" != "--device cuda" ] && [ "$option" != --device=cuda ] ||
    export LD_PRELOAD=$torch/lib/libc10_cuda.so:$torch/lib/libtorch_cuda.so
  previous=$option
done
exec ./fidelity --model model --eval eval --settings fidelity_settings.jsonl "$@"
RUN
chmod +x "$bundle/run"
# The model's bf16 weights hardly shrink; packing everything still halves the libraries.
tar -C "$work" -cJf "$out" fidelity-bundle
echo "wrote $out: $(($(stat -c %s "$out") >> 10)) KiB, $(find "$bundle/lib" -type f | wc -l) libraries"
