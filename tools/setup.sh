#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what sparsed needs to build and test on Debian 12 or Ubuntu 24.04 (x86-64).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
deps=$root/.deps

usage() {
  cat <<EOF
Usage: tools/setup.sh [--check] [--cuda]

Installs, if missing:
  1. Debian/Ubuntu packages: compiler, CMake, gRPC, protobuf, spdlog, prometheus-cpp, GoogleTest, …
  2. a Rust toolchain >= 1.85 (package rustc-web on Debian 12, rustc-1.8x on Ubuntu 24.04)
  3. into $deps: the libraries and headers of LibTorch 2.11 (530 MB download), and Google's error protos
  4. the Rust crates of engine/text/hf

  --check   only say what is missing (exit 1 if anything is)
  --cuda    also the CUDA 13.0 compiler and CUTLASS's headers, into $deps/cuda (110 MB download); no GPU is needed
Needs root or sudo for step 1 and 2 only. Safe to run again: what is there is kept.
EOF
}

check_only=0
cuda=0
for option in "$@"; do
  case "$option" in
    -h|--help) usage; exit 0 ;;
    --check) check_only=1 ;;
    --cuda) cuda=1 ;;
    *) echo "setup: unknown option '$option'" >&2; usage >&2; exit 2 ;;
  esac
done

say() { printf '\033[1msetup:\033[0m %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

[ "$(uname -m)" = x86_64 ] || die "only x86-64 is supported, this is $(uname -m)"
command -v apt-get >/dev/null || die "apt-get not found: Debian 12 or Ubuntu 24.04 is needed"

packages=(
  build-essential cmake ninja-build pkg-config ccache mold git ca-certificates
  python3 python3-pip curl procps
  libgrpc++-dev libgrpc-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev
  libabsl-dev libssl-dev libspdlog-dev nlohmann-json3-dev libcli11-dev
  prometheus-cpp-dev libcpp-httplib-dev
  libgtest-dev libgmock-dev libbenchmark-dev clang-format
)

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done

have_rust() {
  local version
  version=$(cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
  [ -n "$version" ] && [ "$version" -ge 85 ]
}

digest() { sha256sum "$1" | cut -c1-16; }
have_wheels() { [ "$(cat "$deps/.wheels" 2>/dev/null)" = "$(digest "$root/tools/python-wheels.txt")" ]; }
have_cuda() { [ "$(cat "$deps/cuda/.wheels" 2>/dev/null)" = "$(digest "$root/tools/cuda-wheels.txt")" ]; }

if [ $check_only = 1 ]; then
  rc=0
  [ ${#missing[@]} = 0 ] || { echo "missing packages: ${missing[*]}"; rc=1; }
  have_rust || { echo "missing: cargo >= 1.85"; rc=1; }
  have_wheels || { echo "missing: LibTorch in $deps"; rc=1; }
  [ $cuda = 0 ] || have_cuda || { echo "missing: the CUDA compiler in $deps/cuda"; rc=1; }
  [ $rc = 1 ] || echo "everything is installed"
  exit $rc
fi

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "'$*' needs root, and sudo is not installed: run it as root once"; fi
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" \
    || die "apt-get could not install: $*. Check the network and the package sources."
}

if [ ${#missing[@]} != 0 ] || ! have_rust; then
  say "refreshing the package lists"
  as_root apt-get update -qq || die "apt-get update failed: check the network and the package sources"
fi
if [ ${#missing[@]} != 0 ]; then
  say "installing ${#missing[@]} packages: ${missing[*]}"
  apt_install "${missing[@]}"
fi

if ! have_rust; then
  say "installing a Rust toolchain (the tokenizer and chat templates are Hugging Face's Rust crates)"
  if apt-cache show rustc-web >/dev/null 2>&1; then
    apt_install rustc-web cargo-web
  else
    for minor in 91 89 88 87 86 85; do
      if apt-cache show "cargo-1.$minor" >/dev/null 2>&1; then
        apt_install "rustc-1.$minor" "cargo-1.$minor"
        as_root ln -sf "/usr/bin/cargo-1.$minor" /usr/local/bin/cargo
        as_root ln -sf "/usr/bin/rustc-1.$minor" /usr/local/bin/rustc
        break
      fi
    done
  fi
  hash -r
  have_rust || die "no cargo >= 1.85 among the packages: install one (https://rustup.rs) and run this again"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# download <list of wheels>: into $work/<list's name>. Wheels are zips of files for a build; they are unpacked, never
# installed, so any Python 3 with pip will do.
download() {
  python3 -m pip download --disable-pip-version-check --no-deps --require-hashes \
    --only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 --abi none \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux_2_12_x86_64 --platform manylinux2010_x86_64 \
    --dest "$work/$(basename "$1" .txt)" -r "$1" \
    || die "download failed: check the network (pip must reach PyPI) and run this again"
}

if ! have_wheels; then
  say "downloading LibTorch 2.11 and Google's error protos (about 545 MB)"
  download "$root/tools/python-wheels.txt"
  say "unpacking into $deps"
  rm -rf "$deps"
  mkdir -p "$deps"
  python3 - "$work/python-wheels" "$deps" <<'PY'
import pathlib, sys, zipfile
work, deps = map(pathlib.Path, sys.argv[1:])
# Headers plus the libraries a build links: the wheel's other CUDA libraries (450 MB) stay out.
libraries = {"libc10.so", "libc10_cuda.so", "libtorch_cpu.so", "libgomp.so.1", "libshm.so"}
def wanted(name):
    path = pathlib.PurePosixPath(name)
    return (name.startswith("torch/include/") or (name.startswith("torch/lib/") and path.name in libraries)
            or name.startswith("nvidia/cu13/lib/") or name.startswith("google/rpc/")
            or name.startswith("torch-2.11.0.dist-info/licenses/"))
for wheel in sorted(work.glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        members = [m for m in archive.namelist() if wanted(m)]
        print(f"  {wheel.name}: {len(members)} files", flush=True)
        archive.extractall(deps, members)
PY
  digest "$root/tools/python-wheels.txt" > "$deps/.wheels"
fi

if [ $cuda = 1 ] && ! have_cuda; then
  say "downloading the CUDA compiler and CUTLASS's headers (about 110 MB)"
  download "$root/tools/cuda-wheels.txt"
  say "unpacking into $deps/cuda"
  rm -rf "$deps/cuda"
  python3 - "$work/cuda-wheels" "$deps/cuda" <<'PY'
import pathlib, sys, zipfile
work, target = map(pathlib.Path, sys.argv[1:])
# CUDA's folders become those of a toolkit (bin, include, lib, nvvm); of CUTLASS only the headers stay.
folders = {"nvidia/cu13/": "", "cutlass_library/source/include/": "cutlass/"}
for wheel in sorted(work.glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            for folder, place in folders.items():
                if member.filename.startswith(folder) and not member.is_dir():
                    path = target / (place + member.filename[len(folder):])
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(archive.read(member))
        print(f"  {wheel.name}", flush=True)
PY
  ln -sfn lib "$deps/cuda/lib64"  # nvcc looks there
  find "$deps/cuda/bin" "$deps/cuda/nvvm/bin" -type f -exec chmod a+x {} +
  digest "$root/tools/cuda-wheels.txt" > "$deps/cuda/.wheels"
fi

if [ -f "$root/engine/text/hf/Cargo.toml" ]; then
  say "fetching Rust crates"
  cargo fetch --locked --quiet --manifest-path "$root/engine/text/hf/Cargo.toml" \
    || die "cargo could not fetch the crates: check the network and run this again"
fi
say "done"
