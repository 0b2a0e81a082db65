#!/usr/bin/env bash
# Sourced by runners that need client libraries or Node. Environments are under target/ and recreated when their pins change.

export PYTHONUTF8=1 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# python_env PINS VENV: creates a virtual environment from a requirements file.
python_env() {
    cmp -s "$1" "$2/pins" && return
    echo "installing ${2##*/}"
    mkdir -p "${2%/*}"
    timeout 600 python3 -m venv --clear "$2"
    timeout 900 "$2/bin/pip" install --quiet --no-input --requirement "$1"
    cp "$1" "$2/pins"
}

# node_env: installs Node from a Python package, because Debian's is too old. Its programs are in target/sdk/node/bin.
node_env() {
    local root
    root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
    python_env "$root/tests/sdk/requirements-node.txt" "$root/target/sdk/node"
    node_bin=$root/target/sdk/node/bin
}

# npm_env FROM TO: installs the packages of the lock file in FROM into TO. Call node_env first.
npm_env() {
    cmp -s "$1/package-lock.json" "$2/pins" && return
    echo "installing the npm packages of ${1##*/}"
    mkdir -p "$2"
    cp "$1/package.json" "$1/package-lock.json" "$2/"
    (cd "$2" && PATH=$node_bin:$PATH timeout 900 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    cp "$1/package-lock.json" "$2/pins"
}
