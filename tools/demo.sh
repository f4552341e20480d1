#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts a server with the embedded model, shows two generations, stops the server.
# tools/demo/long_context.txt: public-domain fairy tales (Andrew Lang's collections) with made-up pass keys.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
ready_limit_seconds=60
stop_limit_seconds=15

usage() {
  cat <<END
Usage: tools/demo.sh [BUILD_DIR]

Starts BUILD_DIR/bin/sparsed (default: build/release) with the embedded model on free ports, then
  1. continues a story: 128 tokens in 64 steps, four blocks, temperature 0.8
  2. asks for a fact hidden in about 3,000 tokens of text, with sparse attention (preset sparsed)
and prints steps, density, retained mass, time per phase and a few metrics. The server is stopped at
the end, also after an error or Ctrl-C. \`make demo\` builds first and then runs this.
END
}

case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  -*) echo "demo: unknown option '$1'" >&2; usage >&2; exit 2 ;;
esac
bin=${1:-$root/build/release}/bin
model=$root/models/demo-llada-17m
inputs=$root/tools/demo

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi
say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
die() { printf 'demo: %s\n' "$*" >&2; exit 1; }

for program in sparsed sparsectl; do
  [ -x "$bin/$program" ] || die "$bin/$program is not built: run \`make build\` first, or name the build folder"
done

work=$(mktemp -d)
server=''

stop_server() {
  [ -n "$server" ] || return 0
  kill -TERM "$server" 2>/dev/null || true
  for ((i = 0; i < stop_limit_seconds * 10; i++)); do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  if kill -KILL "$server" 2>/dev/null; then
    echo "demo: the server did not stop within $stop_limit_seconds s and was killed" >&2
  fi
  wait "$server" 2>/dev/null || true
  server=''
}
cleanup() {
  stop_server
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

die_with_log() {
  printf 'demo: %s. The end of its log:\n' "$1" >&2
  tail -n 20 "$work/server.log" | sed 's/^/  /' >&2
  exit 1
}

start_server() {
  "$bin/sparsed" --model "$model" --listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
    --port-file "$work/ports.json" >"$work/server.log" 2>&1 &
  server=$!
  for ((i = 0; i < ready_limit_seconds * 10; i++)); do
    [ ! -s "$work/ports.json" ] || break
    kill -0 "$server" 2>/dev/null || die_with_log "the server ended while starting"
    sleep 0.1
  done
  [ -s "$work/ports.json" ] || die_with_log "the server was not ready after $ready_limit_seconds s"
  grpc_port=$(port_of grpc)
  http_port=$(port_of http)
  export SPARSED_SERVER=127.0.0.1:$grpc_port
  "$bin/sparsectl" health >/dev/null || die_with_log "the server is not healthy"
}

port_of() { sed -n "s/.*\"$1\": *\([0-9][0-9]*\).*/\1/p" "$work/ports.json"; }

# generate NAME OPTIONS…: a chat answer, drawn live on a terminal; the result goes to $work/NAME.json.
generate() {
  local name=$1
  shift
  local show=(--provisional)
  [ -t 1 ] || show=(--verbose --every 16)
  printf '\n'
  "$bin/sparsectl" chat --file "$inputs/$name.txt" --save "$work/$name.json" "${show[@]}" "$@"
}

summarise() {
  python3 - "$@" <<'PY'
import json, sys

def number(sparsity, field):
    return f"{sparsity[field]:.3f}" if field in sparsity else "-"

print(f"{'':14} {'steps':>5} {'density':>8} {'mass':>6}   seconds per phase")
for path in sys.argv[1:]:
    result = json.load(open(path))
    phases = {p["phase"].removeprefix("PHASE_").lower(): p["seconds"] for p in result["timings"]["phases"]}
    seconds = "  ".join(f"{name} {value:.2f}" for name, value in phases.items())
    name = path.rsplit("/", 1)[-1].removesuffix(".json")
    sparsity = result["sparsity"]
    print(f"{name:14} {result['usage']['steps']:5} {number(sparsity, 'density'):>8} "
          f"{number(sparsity, 'retained_mass'):>6}   {seconds}")
PY
}

check_answer() {
  local expected answer
  expected=$(cat "$inputs/long_context.answer")
  answer=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["text"].strip())' "$work/long_context.json")
  printf '\nquestion: %s\nanswer:   %s\n' "$(tail -n 1 "$inputs/long_context.txt")" "$answer"
  case "$answer" in
    *"$expected"*) echo "found:    yes, the text says $expected" ;;
    *) echo "found:    no, the text says $expected" ;;
  esac
}

say "Starting the server with models/demo-llada-17m"
start_server
echo "gRPC on $SPARSED_SERVER, metrics on http://127.0.0.1:$http_port/metrics"
"$bin/sparsectl" model

say "1. A story: tokens settle in any order inside a block; dim text is still a guess"
fold -s -w 76 "$inputs/story.txt"
generate story --gen-length 128 --steps 64 --block-length 32 --temperature 0.8 --seed 7

say "2. A fact hidden in about 3,000 tokens, read with sparse attention"
head -c 240 "$inputs/long_context.txt" | fold -s -w 76
printf '\n[…]\n%s\n' "$(tail -n 1 "$inputs/long_context.txt")"
generate long_context --preset sparsed --block-tokens 32 --gen-length 32 --steps 32 \
  --block-length 32 --temperature 0
check_answer

say "Summary (density and mass: of the sparse mask)"
summarise "$work/story.json" "$work/long_context.json"

say "Some of http://127.0.0.1:$http_port/metrics"
curl --silent --show-error --fail --noproxy '*' --max-time 10 "http://127.0.0.1:$http_port/metrics" >"$work/metrics" \
  || die_with_log "the server does not give its metrics"
grep -E '^sparsed_(requests_total|denoising_steps_total|committed_tokens_total|mask_(bytes_used|builds_total|frees_total)|attention_density_(sum|count)|attention_retained_mass_(sum|count))' \
  "$work/metrics" || echo "(none of the expected names)"

say "Stopping the server"
stop_server
echo "stopped"
