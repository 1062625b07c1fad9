#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that Winnow needs and this machine lacks. third_party/README.md says what each is for.
# Called by make; does nothing (and needs no root) when everything is there.
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config make
  libcli11-dev nlohmann-json3-dev libpcre2-dev libhwy-dev   # the program
  libgtest-dev librapidcheck-dev libbenchmark-dev           # its tests and benchmarks
)
# Only for `make lint` and `make fuzz`; asked for by WINNOW_DEPS=all.
if [ "${WINNOW_DEPS:-}" = all ]; then
  packages+=(clang clang-format clang-tidy libclang-rt-14-dev libomp-dev)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "install_dependencies: this script knows Debian only; install these yourself: ${missing[*]}" >&2
  exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then sudo=sudo; fi
echo "install_dependencies: installing ${missing[*]}" >&2
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
