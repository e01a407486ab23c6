#!/usr/bin/env bash
# The tests on Windows: a genuine Windows Python under wine.
#
#   tests/windows/run.sh [FOLDER]      FOLDER of the set-up, see setup.sh
#
# 1. the core suite under the Windows Python; 2. tests/windows/test_*.py, which drive that Python
# from here: the command, kills, Ctrl-C on a terminal, the Japanese console, and, with TensorFlow,
# the whole way to tfds.load. IMAGENET_CONVERT_WINE_TF=0 leaves TensorFlow (1.7 GB) out.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
root=${1:-${IMAGENET_CONVERT_WINE:-${XDG_CACHE_HOME:-$HOME/.cache}/imagenet-convert-wine}}
python=${PYTHON:-python3}

if ! said=$(TF=${IMAGENET_CONVERT_WINE_TF:-1} PYTHON=$python "$here/setup.sh" "$root" 2>&1); then
    reason=$(grep -m 1 '^cannot be installed: ' <<<"$said") || { echo "$said"; exit 1; }
    echo "skipped: wine $reason"
    exit 0
fi
tail -n 1 <<<"$said"
root=$(cd "$root" && pwd)

# A copy is tested, so that nothing is written into the checkout, and installed as a person
# installs it, which makes Scripts\imagenet-convert.exe.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$checkout"/{converter,tests,pyproject.toml,README.md,LICENSE} "$work"
cd "$work"
winpy() {
    "$root/winpy" "$@" </dev/null 2>&1 | sed -u 's/\r$//'
}
PIP_CONFIG_FILE=/dev/null winpy -m pip --disable-pip-version-check --quiet install \
    --no-deps --no-index --no-build-isolation --force-reinstall .

began=$SECONDS
echo "+ the core suite under Windows Python"
core=0
winpy -m pytest -n "${IMAGENET_CONVERT_WINE_PROCESSES:-2}" -q -p no:cacheprovider -rs \
    -m "not slow and not tensorflow" tests || core=$?
echo "+ $((SECONDS - began)) s"
began=$SECONDS
echo "+ driven from outside"
IMAGENET_CONVERT_WINE_MACHINE=$root "$python" -m pytest -n 0 -q -p no:cacheprovider --durations 8 tests/windows
echo "+ $((SECONDS - began)) s"
exit "$core"
